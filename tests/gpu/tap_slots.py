"""The import slots of the framework that the agent has taken in this process, so that a measurement
can put the real functions back and the agent's in again: off is a process in which no call of the
framework's allocator or of its backward passes goes through the agent.

The agent looks at its slots once a second and takes back what it lost, so whoever measures asks
afterwards whether they held still.
"""
import ctypes
import struct

LIBRARY = "libtidemark_cupti.so"
SHT_RELA, SHT_DYNSYM = 4, 11
R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT = 6, 7
PAGE = 4096

libc = ctypes.CDLL(None, use_errno=True)
libc.dlopen.restype = libc.dlsym.restype = ctypes.c_void_p
libc.dlopen.argtypes = [ctypes.c_char_p, ctypes.c_int]
libc.dlsym.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
RTLD_LAZY, RTLD_NOLOAD = 1, 4


def modules():
    """{path: load base} and the address ranges of the agent."""
    bases, agent = {}, []
    for line in open("/proc/self/maps"):
        fields = line.split(maxsplit=5)
        if len(fields) < 6 or ".so" not in fields[5]:
            continue
        path = fields[5].strip()
        low, high = (int(part, 16) for part in fields[0].split("-"))
        bases.setdefault(path, low - int(fields[2], 16))
        if LIBRARY in path:
            agent.append((low, high))
    return bases, agent


def imports(path):
    """(offset of the slot, symbol) of each function that the module calls through a slot."""
    with open(path, "rb") as file:
        data = file.read()
    offset, = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, offset + i * size) for i in range(count)]
    for _, kind, _, _, at, length, link, _, _, _ in sections:
        if kind != SHT_RELA or link >= count or sections[link][1] != SHT_DYNSYM:
            continue
        symbols, strings = sections[link][4], sections[sections[link][6]][4]
        for rela in range(at, at + length, 24):
            slot, info = struct.unpack_from("<QQ", data, rela)
            if info & 0xFFFFFFFF in (R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT):
                name = strings + struct.unpack_from("<I", data, symbols + (info >> 32) * 24)[0]
                yield slot, data[name : data.index(b"\0", name)]


class TapSlots:
    def __init__(self):
        bases, agent = modules()
        handles = [libc.dlopen(path.encode(), RTLD_LAZY | RTLD_NOLOAD) for path in bases
                   if LIBRARY not in path]
        self.slots = []  # (address, the agent's function, the real one, symbol)
        for path, base in bases.items():
            if LIBRARY in path or not path.startswith("/"):
                continue
            for offset, name in imports(path):
                address = base + offset
                if not name.startswith((b"_ZN3c10", b"_ZN5torch")):
                    continue
                value = ctypes.c_uint64.from_address(address).value
                if not any(low <= value < high for low, high in agent):
                    continue
                real = next((found for handle in handles if handle
                             for found in [libc.dlsym(handle, name)]
                             if found and not any(low <= found < high for low, high in agent)), None)
                if real is None:
                    raise RuntimeError(f"{name.decode()} is not defined anywhere")
                # Read-only after relocation; it stays writable from here on.
                if libc.mprotect(address & -PAGE, PAGE, 3) != 0:
                    raise OSError(ctypes.get_errno(), "mprotect")
                self.slots.append((address, value, real, name.decode()))

    def set(self, on):
        for address, ours, real, _ in self.slots:
            ctypes.c_uint64.from_address(address).value = ours if on else real

    def are(self, on):
        return all(ctypes.c_uint64.from_address(address).value == (ours if on else real)
                   for address, ours, real, _ in self.slots)
