#!/bin/sh
# with_python.sh VERSION SCRIPT ARGUMENT...: runs SCRIPT in CPython VERSION (such as 3.9), from the
# PATH or from pyenv. Exits 77 and says so when this machine has no such interpreter.
version=$1
shift
for python in "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$version".*/bin/python"$version" \
              /usr/bin/python"$version" /usr/local/bin/python"$version"; do
  if [ -x "$python" ]; then
    echo "interpreter: $python"
    exec "$python" "$@"
  fi
done
echo "skipped: no CPython $version on this machine (neither in /usr nor in pyenv)"
exit 77
