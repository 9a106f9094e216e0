"""Reads an agent's region (wire/region.h) from a file descriptor, for tests."""

import os
import struct

SECTIONS = {"features": 1, "totals": 2, "sites": 6, "frames": 8, "modules": 9, "strings": 10,
            "steps": 11, "phases": 12}
LAYERS = ["driver", "records", "framework", "host"]
FEATURES = ["cupti_callbacks", "cupti_records", "framework_allocator", "cpu_tensors",
            "out_of_memory", "step_scopes", "backward", "python_frames", "native_frames", "nvtx",
            "agent"]
STATES = ["unknown", "on", "off", "yielded", "unavailable"]


def find_region(pid):
    """A descriptor of the region of process `pid`, which outlives it."""
    for fd in os.listdir("/proc/%d/fd" % pid):
        path = "/proc/%d/fd/%s" % (pid, fd)
        try:
            if os.readlink(path).startswith("/memfd:tidemark"):
                return os.open(path, os.O_RDONLY)
        except OSError:
            pass
    return None


class Region:
    def __init__(self, fd):
        header = os.pread(fd, 3224, 0)
        assert header[:8] == b"TIDEMARK", header[:8]
        self.current_step, self.backward_passes, self.optimizer_scopes = struct.unpack_from(
            "<3Q", header, 80)
        self.losses = struct.unpack_from("<16Q", header, 144)
        self.rows = {}
        count = struct.unpack_from("<I", header, 56)[0]
        entries = {}
        for i in range(count):
            identity, row_bytes, offset, capacity, used = struct.unpack_from(
                "<IIQQQ", header, 400 + 32 * i)
            entries[identity] = (row_bytes, offset, min(used, capacity))
        for name, identity in SECTIONS.items():
            row_bytes, offset, used = entries[identity]
            data = os.pread(fd, row_bytes * used, offset)
            self.rows[name] = [data[i * row_bytes:(i + 1) * row_bytes] for i in range(used)]
            if name == "strings":
                self.strings = data

    def string(self, offset):
        length = struct.unpack_from("<H", self.strings, offset)[0]
        return self.strings[offset + 2:offset + 2 + length].decode()

    def features(self):
        """name -> (state, reason)"""
        found = {}
        for row in self.rows["features"]:
            _, feature, state = struct.unpack_from("<IBB", row)
            found[FEATURES[feature]] = (STATES[state], row[16:].split(b"\0")[0].decode())
        return found

    def totals(self, layer):
        """Sums over the devices and kinds of a layer: (live, allocated, freed bytes)."""
        sums = [0, 0, 0]
        for row in self.rows["totals"]:
            _, row_layer = struct.unpack_from("<IB", row)
            if LAYERS[row_layer] != layer:
                continue
            live, _, allocated, freed = struct.unpack_from("<qqQQ", row, 8)
            sums = [sums[0] + live, sums[1] + allocated, sums[2] + freed]
        return sums

    def sites(self):
        """(live bytes, live count, frames innermost first); Python frames are (file, line, function),
        native ones (module, offset)."""
        found = []
        for row in self.rows["sites"]:
            _, first, count = struct.unpack_from("<IIH", row)
            live_bytes, live_count = struct.unpack_from("<qq", row, 16)
            frames = []
            for frame in self.rows["frames"][first:first + count]:
                kind, line, a, b = struct.unpack("<B3xIII", frame)
                if kind == 2:
                    frames.append((self.string(a), line, self.string(b)))
                else:
                    path = struct.unpack_from("<I", self.rows["modules"][a])[0]
                    frames.append((self.string(path), b))
            found.append((live_bytes, live_count, frames))
        return found

    def phases(self):
        return [self.string(struct.unpack_from("<II", row)[1]) for row in self.rows["phases"]]
