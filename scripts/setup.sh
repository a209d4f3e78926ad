#!/usr/bin/env bash
# Makes a checkout ready to run. Each step looks first and is silent when there is nothing to do.
#
#   scripts/setup.sh [venv] [java] [postgres] [chromium] [console]      without arguments: all of them
#
# venv      .venv with the packages of requirements.lock and Ebla itself, installed in place
# java      says what to install when Java 17 or newer is not found
# postgres  installs PostgreSQL for the tests where that is possible without asking
# chromium  the same for the browser of the tests in tests/browser
# console   the packages that the console is compiled with, of console/package-lock.json
#
# PYTHON=/path/to/python chooses the interpreter of a new .venv.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'setup: %s\n' "$*" >&2; }
loud() { printf '\n*** %s\n\n' "$*" >&2; }
die() { loud "$*"; exit 1; }

# --- venv ---------------------------------------------------------------------------------------------------

suitable_python() { # the interpreter is 3.11 or newer and can make virtual environments
  "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
  local candidate
  for candidate in ${PYTHON:+"$PYTHON"} python3.11 python3.12 python3.13 python3; do
    if suitable_python "$candidate"; then
      printf '%s\n' "$candidate"
      return
    fi
    [ "$candidate" != "${PYTHON:-}" ] || die "PYTHON=$PYTHON is not Python 3.11 or newer with the venv module."
  done
  die "Python 3.11 or newer with the venv module was not found." \
    "Debian: apt-get install python3 python3-venv; macOS: brew install python@3.11; or set PYTHON."
}

# The path is part of it: a copied or moved checkout must not go on using the code of the old place.
fingerprint() { { pwd -P; cat requirements.lock pyproject.toml; } | cksum; }

setup_venv() {
  local stamp=.venv/.installed python
  if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(fingerprint)" ] && .venv/bin/python -c '' 2>/dev/null; then
    return
  fi
  if ! .venv/bin/python -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
    python=$(find_python)
    say "making .venv with $("$python" --version)"
    "$python" -m venv --clear .venv
  fi
  say "installing the packages of requirements.lock into .venv (a few minutes the first time)"
  rm -f "$stamp" # an interrupted installation is repeated
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
  fingerprint >"$stamp"
}

# --- Java ---------------------------------------------------------------------------------------------------

java_hint='Debian: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17; or set JAVA_HOME'

check_java() { # looks where Spark looks: JAVA_HOME first, then PATH
  local java=java text major
  if [ -n "${JAVA_HOME:-}" ]; then
    java=$JAVA_HOME/bin/java
    [ -x "$java" ] || die "JAVA_HOME is $JAVA_HOME, but $java is not there. Spark needs Java 17 or newer. $java_hint"
  fi
  text=$("$java" -version 2>&1) || die "Java was not found; Spark needs Java 17 or newer. $java_hint"
  # 'version "17.0.15"', 'version "21"', and 'version "1.8.0_402"' for Java 8
  major=$(sed -nE 's/.*version "(1\.)?([0-9]+).*/\2/p' <<<"$text" | head -n 1)
  [ "${major:-0}" -ge 17 ] || die "$java is Java ${major:-of an unknown version}; Spark needs Java 17 or newer. $java_hint"
}

# --- PostgreSQL ---------------------------------------------------------------------------------------------

has_postgres() { command -v initdb >/dev/null 2>&1 || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null; }

install_package() { # of Debian, where that is possible without asking
  local as_root=()
  command -v apt-get >/dev/null 2>&1 || return 1
  if [ "$(id -u)" -ne 0 ]; then
    sudo -n true >/dev/null 2>&1 || return 1
    as_root=(sudo -n)
  fi
  say "installing the Debian package $1"
  ${as_root[@]+"${as_root[@]}"} apt-get update -qq &&
    ${as_root[@]+"${as_root[@]}"} env DEBIAN_FRONTEND=noninteractive \
      apt-get install -y -qq --no-install-recommends "$1" >/dev/null
}

setup_postgres() {
  has_postgres && return
  if install_package postgresql && has_postgres; then
    return
  fi
  loud "PostgreSQL is not installed: the tests that need it will be SKIPPED (with CI=true they fail)." \
    "Debian: apt-get install postgresql; macOS: brew install postgresql; initdb must be on PATH."
}

# --- the console --------------------------------------------------------------------------------------------

has_chromium() { command -v chromium >/dev/null 2>&1 || command -v chromium-browser >/dev/null 2>&1; }

setup_chromium() {
  has_chromium && return
  if install_package chromium && has_chromium; then
    return
  fi
  loud "Chromium is not installed: the tests of the console will be SKIPPED (with CI=true they fail)." \
    "Debian: apt-get install chromium; chromium must be on PATH."
}

setup_console() {
  local stamp=console/node_modules/.installed
  if ! node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' 2>/dev/null || ! command -v npm >/dev/null; then
    loud "Node.js 20 or newer with npm was not found: the console cannot be compiled, and the tests that compare it" \
      "with its source will be SKIPPED (with CI=true they fail)."
    return
  fi
  if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(cksum <console/package-lock.json)" ]; then
    return
  fi
  say "installing the packages of console/package-lock.json"
  (cd console && npm ci --silent --no-audit --no-fund)
  cksum <console/package-lock.json >"$stamp"
}

# --- steps --------------------------------------------------------------------------------------------------

[ $# -gt 0 ] || set -- venv java postgres chromium console
for step in "$@"; do
  case $step in
    venv) setup_venv ;;
    java) check_java ;;
    postgres) setup_postgres ;;
    chromium) setup_chromium ;;
    console) setup_console ;;
    *) die "unknown step '$step'; expected venv, java, postgres, chromium or console" ;;
  esac
done
