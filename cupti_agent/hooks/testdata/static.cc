// Defines a function and calls it without an import, as a statically linked library does.
extern "C" {
[[gnu::visibility("protected")]] int hooktest_statically_linked(int x) { return x * 2; }
int user_static(int x) { return hooktest_statically_linked(x) + 1; }
}
