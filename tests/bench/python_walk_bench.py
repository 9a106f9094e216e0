"""One walk of Python frames beside the interpreter's own ways, in one run. Argument: the stack walks'
test library."""

import ctypes
import sys
import time
import traceback

library = ctypes.CDLL(sys.argv[1])
library.stacktest_walk_ns.restype = ctypes.c_double
library.stacktest_start()
WALKS = 20000


def at_depth(depth):
    if depth > 1:
        return at_depth(depth - 1)
    walk = min(library.stacktest_walk_ns(WALKS) for _ in range(5))
    begin = time.perf_counter()
    for _ in range(200):
        traceback.extract_stack()
    extract = (time.perf_counter() - begin) / 200 * 1e9
    return walk, extract


for depth in (4, 20, 80):
    walk, extract = at_depth(depth - 1)
    print("depth %2d: walk %5.0f ns, traceback.extract_stack %7.0f ns, ratio %.0f"
          % (depth, walk, extract, extract / walk))
