# Two commands for everyone, `make demo` and `make test`; the rest is for those who work on the project (`make help`).
# Every target does its own set-up: a virtual environment in .venv, build tools from PyPI, builds below build/.

PYTHON ?= python3
JOBS ?= 2
# Warnings are errors where we look at them; a user's newer compiler must not stop `make test`.
WERROR ?= $(if $(CI),ON,OFF)
SANITIZE ?= address,undefined
# GPU code of the test kernels: nvcc made it with the C library, or it was brought here.
KERNELS ?= build/c/vmm_kernels.fatbin

VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python -I
CMAKE := $(BIN)/cmake
NINJA := $(CURDIR)/$(BIN)/ninja
CTEST := $(BIN)/ctest
CONFIGURE := $(CMAKE) -S libvmm -G Ninja -DCMAKE_MAKE_PROGRAM=$(NINJA) -DVMM_WERROR=$(WERROR)

C_FILES := $(shell find libvmm -name '*.[ch]' -o -name '*.def' -o -name '*.cu' -o -name '*.map' -o -name '*.in' -o -name '*.cmake' -o -name CMakeLists.txt)
PY_FILES := $(shell find pyvmm -name '*.py' -o -name '*.pyi' -o -name py.typed -o -name '*.c' -o -name '*.h' -o -name CMakeLists.txt 2>/dev/null)
C_STYLE := $(shell find libvmm pyvmm -name '*.[ch]')

.DEFAULT_GOAL := help
.PHONY: help demo test build install test-c test-py test-gpu packaging conformance faults faults-all mutants asan ubsan tsan \
  sanitize valgrind clang cov lint layers symbols format docs wheel clean bench bench-cpu bench-gpu
.DELETE_ON_ERROR:

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /\1\t/' | awk -F '\t' '{printf "  make %-12s %s\n", $$1, $$2}'

# ---- set-up: one stamp per group of tools, redone when pyproject.toml changes ----
$(VENV)/stamp-venv:
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is not there; make PYTHON=... names another" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "Python 3.10 or newer is needed; $(PYTHON) is $$($(PYTHON) -V)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/stamp-%: $(VENV)/stamp-venv pyproject.toml scripts/requirements.py
	@$(PY) scripts/requirements.py $* > $(VENV)/requirements-$*.txt
	$(PY) -m pip install --quiet --disable-pip-version-check -r $(VENV)/requirements-$*.txt
	@touch $@

TOOLS := $(VENV)/stamp-build

build/c/stamp: $(TOOLS) $(C_FILES)
	@mkdir -p build
	@$(CONFIGURE) -B build/c > build/configure.log 2>&1 || { cat build/configure.log; exit 1; }
	$(CMAKE) --build build/c -j $(JOBS)
	@touch $@

build: build/c/stamp ## build the C library and its tests into build/c

# pyvmm as a user gets it, installed into the virtual environment; the build folder is kept, so a change costs seconds.
build/py/stamp: $(TOOLS) $(C_FILES) $(PY_FILES) pyproject.toml
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --config-settings=build-dir=build/py .
	@mkdir -p build/py
	@touch $@

install: build/py/stamp ## install pyvmm into .venv

# ---- the two front doors ----
demo: build/py/stamp $(VENV)/stamp-demo ## play the fault that the library exists for, on a GPU or the simulated device
	@$(PY) -m pyvmm demo $(DEMO_ARGS)

test: build/c/stamp build/py/stamp $(VENV)/stamp-test ## everything that can be tested here, with a summary
	@$(PY) scripts/test_all.py --jobs $(JOBS)

# ---- parts of it ----
test-c: build/c/stamp ## the C unit tests
	$(CTEST) --test-dir build/c -j $(JOBS) --output-on-failure -L 'unit|fuzz|example'

test-py: build/py/stamp $(VENV)/stamp-test ## the Python tests
	$(BIN)/pytest -m 'not packaging' $(PYTEST_ARGS)

packaging: build/c/stamp build/py/stamp $(VENV)/stamp-test ## install, consumers, wheel contents
	$(BIN)/pytest -m packaging $(PYTEST_ARGS)

test-gpu: build/c/stamp build/py/stamp $(VENV)/stamp-test ## conformance and the GPU-labelled tests on a real GPU
	build/c/conformance --driver cuda --kernels $(KERNELS)
	VMM_TEST_DRIVER=cuda $(BIN)/pytest -m gpu $(PYTEST_ARGS)

conformance: build/c/stamp ## the facts about the driver, on the simulated one
	build/c/conformance

faults: build/c/stamp ## every operation fails at every occurrence; the promises hold
	build/c/faults --part

faults-all: build/c/stamp ## the same with every second fault inside the undo: takes minutes
	build/c/faults

mutants: build/c/stamp ## break each undo step and counter in a copy; a test must notice
	$(PY) scripts/mutants.py

layers: $(VENV)/stamp-venv ## includes, file and function lengths, import cycles
	$(PY) scripts/check_layers.py

symbols: build/c/stamp ## what the shared library exports and asks for
	$(PY) scripts/check_symbols.py build/c/libvmm.so

# ---- speed and memory: python -m pyvmm bench --help says more; TRACES: logs and request traces to replay ----
TRACES ?=
BENCH := $(PY) -m pyvmm bench all --programs build/c --out out/bench.json $(TRACES)

bench: build/c/stamp build/py/stamp $(VENV)/stamp-demo ## all the benchmarks that this machine can run, against peers
	@$(BENCH) $(BENCH_ARGS)

bench-gpu: build/c/stamp build/py/stamp $(VENV)/stamp-demo ## the same, and a GPU is a must
	@$(BENCH) --driver cuda $(BENCH_ARGS)

# With what is here: CMake of the virtual environment or of the system, else the compiler alone.
bench-cpu: build/cpu/bench_pair ## pairs on the CPU against mimalloc; fetches nothing
	@build/cpu/bench_pair $(BENCH_ARGS)

build/cpu/bench_pair: $(C_FILES)
	@sh scripts/build_bench.sh build/cpu

# ---- instruments ----
asan: ## C tests under AddressSanitizer
	@$(MAKE) --no-print-directory sanitize SANITIZE=address
ubsan: ## C tests under UndefinedBehaviorSanitizer
	@$(MAKE) --no-print-directory sanitize SANITIZE=undefined
tsan: ## C tests under ThreadSanitizer
	@$(MAKE) --no-print-directory sanitize SANITIZE=thread

comma := ,
SANITIZE_DIR = build/sanitize-$(subst $(comma),-,$(SANITIZE))
sanitize: $(TOOLS)
	@$(CONFIGURE) -B $(SANITIZE_DIR) -DVMM_SANITIZE=$(SANITIZE) > /dev/null
	$(CMAKE) --build $(SANITIZE_DIR) -j $(JOBS)
	$(if $(findstring thread,$(SANITIZE)),sh scripts/no_aslr.sh) $(CTEST) --test-dir $(SANITIZE_DIR) -j $(JOBS) --output-on-failure

# It runs one thread at a time; without fair turns some wait for minutes.
valgrind: build/c/stamp ## C unit tests under valgrind
	@command -v valgrind >/dev/null || { echo "valgrind is not installed" >&2; exit 1; }
	@for program in build/c/test_*; do [ -x "$$program" ] && [ -f "$$program" ] || continue; echo "$$program"; \
	  valgrind --quiet --fair-sched=yes --leak-check=full --errors-for-leak-kinds=definite --error-exitcode=9 "$$program" || exit 1; done

clang: $(TOOLS) ## build with clang, warnings as errors
	@CC=clang $(CONFIGURE) -B build/clang -DVMM_WERROR=ON > /dev/null
	$(CMAKE) --build build/clang -j $(JOBS)

cov: $(TOOLS) $(VENV)/stamp-cov ## branch coverage of the C library, floor by floor
	@$(CONFIGURE) -B build/cov -DVMM_COVERAGE=ON -DCMAKE_BUILD_TYPE=Debug -DVMM_KERNELS=OFF > /dev/null
	$(CMAKE) --build build/cov -j $(JOBS)
	@find build/cov -name '*.gcda' -delete
	$(CTEST) --test-dir build/cov -j $(JOBS) --output-on-failure
	build/cov/faults --part > build/cov/faults.txt || (tail -n 30 build/cov/faults.txt; false)
	$(BIN)/gcovr --root . --filter libvmm/src/ --exclude-throw-branches --json-summary build/cov/coverage.json build/cov
	$(PY) scripts/coverage_table.py build/cov/coverage.json --require region=90 --require pool=90

lint: $(VENV)/stamp-lint $(VENV)/stamp-test build/py/stamp ## ruff, mypy --strict, clang-format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@cp -p build/py/_vmm.pyi pyvmm/ # the stub of the compiled module, made by its build
	$(BIN)/mypy
	@$(BIN)/clang-format --dry-run -Werror $(C_STYLE)

format: $(VENV)/stamp-lint ## format C and Python
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(C_STYLE)

docs: $(VENV)/stamp-docs ## the documentation as HTML in build/docs
	$(BIN)/sphinx-build -W --keep-going -q -b html docs build/docs

wheel: $(TOOLS) $(VENV)/stamp-wheel ## a wheel in dist/
	$(PY) -m build --wheel --no-isolation -o dist .

clean: ## remove what was built, and .venv
	rm -rf build dist out .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
