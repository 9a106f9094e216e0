"""The walk of Python frames equals the interpreter's own account of them, in the interpreter that runs
this file. Arguments: the test library."""

import ctypes
import sys
import threading
import traceback
import unittest

LIBRARY = sys.argv.pop(1)
BUFFER = 1 << 18


class Walker:
    """`how` is ctypes.CDLL (calls without the GIL) or ctypes.PyDLL (calls with it)."""

    def __init__(self, how):
        self.library = how(LIBRARY)
        self.library.stacktest_python.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
        self.library.stacktest_native.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
        self.library.stacktest_status.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
        self.library.stacktest_attach_wrong.argtypes = [ctypes.c_char_p, ctypes.c_int]
        self.library.stacktest_hash.restype = ctypes.c_ulong
        self.library.stacktest_walk_ns.restype = ctypes.c_double

    def __call__(self):
        text = ctypes.create_string_buffer(BUFFER)
        count = self.library.stacktest_python(text, BUFFER)
        assert count >= 0, count
        frames = [line.split("\t") for line in text.value.decode().splitlines()]
        # The first frame is this very function.
        return [(file, int(line), function) for file, line, function in frames[1:]]


def interpreters_account():
    """The caller's stack as the interpreter tells it, innermost frame first."""
    frames = []
    for frame, line in traceback.walk_stack(sys._getframe(1)):
        code = frame.f_code
        frames.append((code.co_filename, line, getattr(code, "co_qualname", code.co_name)))
    return frames


without_gil = Walker(ctypes.CDLL)
with_gil = Walker(ctypes.PyDLL)


class PythonWalk(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        with_gil.library.stacktest_start()

    def setUp(self):
        reason = ctypes.create_string_buffer(200)
        on = with_gil.library.stacktest_status(reason, 200)
        self.assertTrue(on, reason.value)

    def check(self, pair):
        walked, told = pair
        self.assertEqual(walked[:95], told[:95])
        self.assertGreater(len(walked), 3)

    def test_knows_the_version(self):
        self.assertEqual(with_gil.library.stacktest_version(),
                         sys.version_info[0] << 8 | sys.version_info[1])

    def test_a_plain_stack_without_the_gil(self):
        self.check((without_gil(), interpreters_account()))

    def test_a_plain_stack_with_the_gil(self):
        self.check((with_gil(), interpreters_account()))

    def test_lines_equal_extract_stack(self):
        def inner():
            return without_gil(), traceback.extract_stack()
        walked, extracted = inner()
        self.assertEqual([(file, line) for file, line, _ in walked],
                         [(f.filename, f.lineno) for f in reversed(extracted)])

    def test_functions_of_every_kind(self):
        class Owner:
            def method(self):
                return (lambda: [pair for pair in [(without_gil(), interpreters_account())]][0])()

            @staticmethod
            def static():
                return Owner().method()

            @classmethod
            def of_class(cls):
                return cls.static()

            @property
            def value(self):
                return self.of_class()

        self.check(Owner().value)

    def test_a_class_body(self):
        class Body:
            pair = (without_gil(), interpreters_account())
        self.check(Body.pair)

    def test_generators(self):
        def inner():
            received = yield
            while True:
                received = yield (without_gil(), interpreters_account())

        def outer():
            yield from inner()

        generator = outer()
        next(generator)
        for _ in range(3):
            self.check(generator.send(1))
        self.check(next(pair for pair in ((without_gil(), interpreters_account()) for _ in "x")))

    def test_coroutines(self):
        async def leaf():
            return without_gil(), interpreters_account()

        async def middle():
            return await leaf()

        coroutine = middle()
        try:
            coroutine.send(None)
        except StopIteration as done:
            self.check(done.value)

    def test_calls_from_c_code_and_back(self):
        self.check(sorted([1], key=lambda _: self.pairs.append(
            (without_gil(), interpreters_account())) or 0) and self.pairs.pop())

    pairs = []

    def test_expressions_over_many_lines(self):
        def take(*arguments):
            return arguments[2]
        self.check(take(
            1,
            2,
            (without_gil(), interpreters_account()),
            [
                4,
            ],
        ))

    def test_exception_handlers_and_finally(self):
        def run():
            pairs = []
            try:
                raise ValueError
            except ValueError:
                pairs.append((without_gil(), interpreters_account()))
            finally:
                pairs.append((without_gil(), interpreters_account()))
            with threading.Lock():
                pairs.append((without_gil(), interpreters_account()))
            for i in range(2):
                if i:
                    continue
                pairs.append((without_gil(), interpreters_account()))
            return pairs
        for pair in run():
            self.check(pair)

    def test_far_apart_lines_and_long_code(self):
        for gap in (1, 100, 126, 127, 128, 129, 300, 1000, 70000):
            source = ("def f(walk, account, a=1, b=2):\n" +
                      "    x = a + b * 3 - len('abc')\n" * (gap % 400) +
                      "\n" * gap + "    return walk(), account()\n")
            scope = {}
            exec(compile(source, "generated_%d.py" % gap, "exec"), scope)
            self.check(scope["f"](without_gil, interpreters_account))

    def test_a_backward_jump_of_lines(self):
        def f(
            first=lambda: None,
            *rest
        ):
            value = [
                rest,
                first(),
                rest][1]
            return value
        self.check(f(lambda: (without_gil(), interpreters_account())))

    def test_names_that_are_not_ascii(self):
        for name in ("caf\u00e9", "\u4e2d\u6587", "\U00010400x"):
            scope = {"walk": without_gil, "account": interpreters_account}
            exec(compile("def %s():\n  return walk(), account()\n" % name, "/tmp/%s.py" % name,
                         "exec"), scope)
            self.check(scope[name]())

    def test_a_file_name_that_cannot_be_decoded(self):
        scope = {"walk": without_gil}
        exec(compile("def f():\n  return walk()\n", "/tmp/\udcff.py", "exec"), scope)
        self.assertEqual(scope["f"]()[0], ("/tmp/\ufffd.py", 2, "f"))

    def test_a_very_long_file_name_is_cut(self):
        scope = {"walk": without_gil}
        exec(compile("def f():\n  return walk()\n", "/" + "\u00e9" * 5000, "exec"), scope)
        file, line, function = scope["f"]()[0]
        self.assertTrue(("/" + "\u00e9" * 5000).startswith(file))
        self.assertIn(len(file.encode()), (1023, 1024))
        self.assertEqual((line, function), (2, "f"))

    def test_deep_recursion_is_cut_and_marked(self):
        truncated = 4

        def recurse(depth):
            if depth:
                return recurse(depth - 1)
            return (without_gil(), interpreters_account()), without_gil.library.stacktest_flags()

        pair, flags = recurse(50)
        self.check(pair)
        self.assertEqual(len(pair[0]), len(pair[1]))
        self.assertEqual(flags & truncated, 0)
        pair, flags = recurse(300)
        self.check(pair)
        self.assertEqual(len(pair[0]), 95)
        self.assertEqual(flags & truncated, truncated)

    def test_every_thread_sees_its_own_frames(self):
        errors = []

        def work(number):
            def recurse(depth):
                if depth:
                    return recurse(depth - 1)
                walked, told = without_gil(), interpreters_account()
                if walked != told:
                    errors.append((walked, told))
            for _ in range(200):
                recurse(number)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(errors, [])

    def test_a_thread_that_python_does_not_know_has_no_frames(self):
        self.assertEqual(without_gil.library.stacktest_foreign_thread(), 0)

    def test_equal_stacks_have_equal_hashes_and_different_lines_different_ones(self):
        hashes = [without_gil.library.stacktest_hash() for _ in range(5)]
        other = without_gil.library.stacktest_hash()
        self.assertEqual(len(set(hashes)), 1)
        self.assertNotEqual(hashes[0], other)

    def test_takes_no_reference(self):
        def target():
            before = sys.getrefcount(target.__code__), sys.getrefcount(target)
            for _ in range(1000):
                without_gil.library.stacktest_hash()
            return before, (sys.getrefcount(target.__code__), sys.getrefcount(target))
        before, after = target()
        self.assertEqual(before, after)

    def test_native_frames_end_where_python_begins(self):
        text = ctypes.create_string_buffer(BUFFER)
        count = without_gil.library.stacktest_native(text, BUFFER)
        self.assertGreater(count, 3)
        frames = [line.split("\t") for line in text.value.decode().splitlines()]
        native = [frame for frame in frames if ".so" in frame[0]]
        python = frames[len(native):]
        self.assertTrue(any("_ctypes" in frame[0] or "libffi" in frame[0] for frame in native),
                        native)
        self.assertNotIn(LIBRARY, [frame[0] for frame in frames])
        self.assertEqual(python[0][0], __file__)
        self.assertEqual(python[0][2].split(".")[-1],
                         "test_native_frames_end_where_python_begins")


class WrongOffsets(unittest.TestCase):
    """Last: each attaches anew with a layout that does not hold."""

    def check(self, field, delta):
        self.assertEqual(with_gil.library.stacktest_attach_wrong(field.encode(), delta), 0)
        text = ctypes.create_string_buffer(BUFFER)
        count = with_gil.library.stacktest_python(text, BUFFER)
        reason = ctypes.create_string_buffer(200)
        on = with_gil.library.stacktest_status(reason, 200)
        self.assertEqual((on, count), (0, 0), (field, delta, reason.value))
        self.assertNotEqual(reason.value, b"")

    def test_wrong_offsets_turn_the_walk_off_with_a_reason(self):
        name = "code_qualified_name" if hasattr(self.check.__code__, "co_qualname") else "code_name"
        for field in ("thread_frame", "thread_id", "frame_code", "frame_previous",
                      "frame_position", "code_filename", name, "code_first_line",
                      "code_line_table"):
            for delta in (-8, 8, 16, 24, 64, 4096):
                with self.subTest(field=field, delta=delta):
                    self.check(field, delta)


if __name__ == "__main__":
    suite = unittest.TestSuite()
    loader = unittest.defaultTestLoader
    suite.addTests(loader.loadTestsFromTestCase(PythonWalk))
    suite.addTests(loader.loadTestsFromTestCase(WrongOffsets))
    result = unittest.TextTestRunner().run(suite)
    sys.exit(0 if result.wasSuccessful() else 1)
