#!/bin/bash
# clang-tidy over the C++ that a change touches: changed .cpp files, and those that include a changed header.
#
#   cmake/clang_tidy.sh [BASE|all]
#
# BASE is the commit to compare the working tree with. By default: the merge base with origin/main; if that
# is HEAD itself, the commit before it; if there is none, everything. Reads the compile commands of
# build/release, and of build/python for the bindings. LYNX_TIDY_JOBS (2) run at once.
set -euo pipefail
cd "$(dirname "$0")/.."
tidy=${CLANG_TIDY:-.venv/bin/clang-tidy}

base=${1:-}
if [[ -z $base ]]; then
    base=$(git merge-base HEAD origin/main 2>/dev/null || true)
    if [[ -z $base || $base == "$(git rev-parse HEAD 2>/dev/null)" ]]; then
        base=$(git rev-parse --verify --quiet HEAD~1 || echo all)
    fi
fi

# libfuzzer_main.cpp is compiled by the preset `fuzz` alone.
all_sources() { find cpp tests/cpp tests/fuzz -name '*.cpp' ! -name libfuzzer_main.cpp | sort; }

if [[ $base == all ]]; then
    mapfile -t files < <(all_sources)
else
    mapfile -t changed < <({ git diff --name-only --diff-filter=d "$base" -- cpp tests/cpp tests/fuzz
                             git ls-files --others --exclude-standard -- cpp tests/cpp tests/fuzz; } | sort -u)
    mapfile -t files < <(
        for file in "${changed[@]}"; do
            case $file in
                */libfuzzer_main.cpp) ;;
                *.cpp) echo "$file" ;;
                # A header is read through whoever includes it by its path below an include folder, or by name.
                *.hpp) all_sources | xargs grep -lE "#include \"([a-z_]+/)?$(basename "$file")\"" || true ;;
            esac
        done | sort -u)
fi
[[ ${#files[@]} -gt 0 ]] || { echo "clang-tidy: no C++ changed since ${base:0:12}"; exit 0; }

declare -a main=() tests=() bindings=()
for file in "${files[@]}"; do
    case $file in
        cpp/bindings/*) bindings+=("$file") ;;
        tests/*) tests+=("$file") ;;
        *) main+=("$file") ;;
    esac
done

run() {  # run <build folder> <further checks> <file>...
    local build=$1 checks=$2
    shift 2
    printf '%s\0' "$@" | xargs -0 -n 1 -P "${LYNX_TIDY_JOBS:-2}" "$tidy" -p "$build" --quiet \
        --checks="$checks" --extra-arg=-Wno-unknown-warning-option
}

echo "clang-tidy: ${#files[@]} files (since ${base:0:12})"
status=0
if [[ ${#main[@]} -gt 0 ]]; then run build/release "" "${main[@]}" || status=1; fi
# Tests pass what is not valid on purpose, and stop at an empty optional by themselves.
if [[ ${#tests[@]} -gt 0 ]]; then
    run build/release "-clang-analyzer-optin.core.EnumCastOutOfRange,-clang-analyzer-unix.StdCLibraryFunctions,\
-bugprone-unchecked-optional-access,-bugprone-implicit-widening-of-multiplication-result,-performance-*" \
        "${tests[@]}" || status=1
fi
# nanobind registers by constructing: nb::exception<T>(module, "T") is meant as it stands.
if [[ ${#bindings[@]} -gt 0 ]]; then
    run build/python "-bugprone-unused-raii,-bugprone-throw-keyword-missing" "${bindings[@]}" || status=1
fi
exit $status
