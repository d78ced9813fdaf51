# Each target sets up .venv when it is missing or when the declared dependencies changed. Needs Python 3.11+ and make.
PYTHON ?= python3
BIN := .venv/bin
# The exact pin is the CPU build where one is offered; an open range would pull gigabytes of CUDA libraries.
TORCH := torch==2.13.0

# Where `make demo` and `make bench` write.
OUT ?= out/demo
RESULTS ?= benchmarks/results.csv
# Time of each measurement of `make bench`.
BENCH_SECONDS ?= 10

.PHONY: demo test test-slow lint format bench bench-spectra clean

demo: .venv/ready
	$(BIN)/python examples/count_cycles.py --out $(OUT)

test: .venv/ready
	$(BIN)/python -m pytest -n 2 --dist worksteal

test-slow: .venv/ready
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "slow or not slow"

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/ready
	$(BIN)/gssc bench conv spectra-small training --device cpu --seconds $(BENCH_SECONDS) --out $(RESULTS)

bench-spectra: .venv/ready
	$(BIN)/python -m gssc.bench.spectra_large --limit 40 --out $(RESULTS) --plot benchmarks/spectra_large_cpu.png

.venv/ready: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "gssc needs Python 3.11 or later: make PYTHON=python3.12 …")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet $(TORCH)
	$(BIN)/python -m pip install --quiet $(TORCH) --editable ".[dev]"
	touch $@

clean:
	rm -rf .venv out build dist
