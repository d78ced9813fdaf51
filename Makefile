# Each target sets up .venv when it is missing or when the declared dependencies changed. Needs Python 3.11+ and make.
PYTHON ?= python3
BIN := .venv/bin
# The exact pin is the CPU build where one is offered; an open range would pull gigabytes of CUDA libraries.
TORCH := torch==2.13.0

# Where `make demo`, `make docs`, `make reproduce` and `make bench` write.
demo: OUT ?= out/demo
demo: EPOCHS ?= 100
docs: OUT ?= out/site
reproduce: OUT ?= out/reproduce/$(RECIPE)
RESULTS ?= benchmarks/results.csv
# Time of each measurement of `make bench`.
BENCH_SECONDS ?= 10

# Of `make reproduce`: the row (results/RECIPE/VARIANT where it was recorded, else the recipe as shipped), where raw data
# are or go, which seeds, on which device, and changes such as train.epochs=10.
RECIPE ?= cycles-3
VARIANT ?= main
DATA_ROOT ?= data
SEEDS ?= 0
DEVICE ?= auto
ARGS ?=

.PHONY: demo docs test test-slow lint format bench bench-spectra reproduce results clean

demo: .venv/ready
	$(BIN)/python examples/count_cycles.py --out $(OUT) --epochs $(EPOCHS)

# A site that needs no server and no network: open out/site/index.html.
docs: .venv/ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --site-dir $(abspath $(OUT))

test: .venv/ready
	$(BIN)/python -m pytest -n 2 --dist worksteal

test-slow: .venv/ready
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "slow or not slow"

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/ready
	$(BIN)/python -m benchmarks conv spectra-small training --device cpu --seconds $(BENCH_SECONDS) --out $(RESULTS)

bench-spectra: .venv/ready
	$(BIN)/python -m benchmarks.spectra_large --limit 40 --out $(RESULTS)

# A row of the results from nothing: download or find the data, train, score, and put it beside the recorded number.
reproduce: SETTINGS = $(firstword $(wildcard results/$(RECIPE)/$(VARIANT)/seed-*/config.yaml) $(RECIPE))
reproduce: .venv/ready
	$(BIN)/gssc train $(SETTINGS) $(ARGS) --seeds $(SEEDS) --data-root $(DATA_ROOT) --device $(DEVICE) --out $(OUT) --resume
	$(BIN)/gssc report $(OUT) --recorded results -o $(OUT)/report

# The pages of results and ablations, from what `python -m tools.collect` has kept under results/.
results: .venv/ready
	$(BIN)/python -m tools.results results -o docs --readme README.md

.venv/ready: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "gssc needs Python 3.11 or later: make PYTHON=python3.12 …")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet $(TORCH)
	$(BIN)/python -m pip install --quiet $(TORCH) --editable ".[dev]"
	touch $@

clean:
	rm -rf .venv out build dist
