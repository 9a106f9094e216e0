#!/usr/bin/env python3
"""weaken_versions.py FLOOR FILE...: marks symbol versions of glibc newer than FLOOR as weak.

The loader refuses a file that names a version its glibc lacks, whether or not the symbol is there by
another way. Weak ones (VER_FLG_WEAK) it lets pass; libtidemark_glibc.so then has the symbols. A
symbol above the floor that it does not have ends this with an error: it would fail in use.
"""
import re
import struct
import subprocess
import sys

GIVEN = {"arc4random", "_dl_find_object"}  # by glibc_floor.c
SHT_GNU_VERNEED = 0x6FFFFFFE
VER_FLG_WEAK = 2


def number(version):
    match = re.fullmatch(r"GLIBC_(\d+)\.(\d+)(?:\.\d+)?", version)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def weaken(path, floor):
    symbols = re.findall(r"\*UND\*\s+\S+\s+\(?(GLIBC_[\d.]+)\)?\s+(\S+)",
                         subprocess.run(["objdump", "-T", path], capture_output=True, text=True,
                                        check=True).stdout)
    missing = {name for version, name in symbols if number(version) > floor} - GIVEN
    if missing:
        sys.exit(f"weaken_versions: {path} needs {sorted(missing)} of a newer glibc")
    data = bytearray(open(path, "rb").read())
    (section_offset,) = struct.unpack_from("<Q", data, 0x28)
    entry_size, count = struct.unpack_from("<HH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, section_offset + i * entry_size)
                for i in range(count)]
    changed = False
    for section in sections:
        if section[1] != SHT_GNU_VERNEED:
            continue
        strings = sections[section[6]][4]
        need = section[4]
        while True:
            _, auxiliaries, _, first, following = struct.unpack_from("<HHIII", data, need)
            entry = need + first
            for _ in range(auxiliaries):
                _, flags, _, name, step = struct.unpack_from("<IHHII", data, entry)
                text = data[strings + name:data.index(b"\0", strings + name)].decode()
                if number(text) > floor:
                    struct.pack_into("<H", data, entry + 4, flags | VER_FLG_WEAK)
                    changed = True
                entry += step
            if following == 0:
                break
            need += following
    if changed:
        with open(path, "r+b") as file:
            file.write(data)
        print(f"weaken_versions: {path.rsplit('/', 1)[-1]}")


def main():
    floor = number("GLIBC_" + sys.argv[1])
    for path in sys.argv[2:]:
        weaken(path, floor)


if __name__ == "__main__":
    main()
