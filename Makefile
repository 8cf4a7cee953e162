# make demo            set up .venv, then train M1 on real images and draw what it learnt
# make explore         set up .venv, then write explorer.html from the packaged weights and open it
# make test            set up .venv, then run the tests
# make test-slow       the tests that take longest: killed runs, two processes, benchmarks, peak memory
# make test-docs       only the tests of README and docs: links, examples, every measured number
# make docs            build the documentation site into site/ and check its links, names and pages
# make docs-serve      show it at localhost:8000 while you write
# make coverage        the tests, then a table of the lines that they never ran; about a fifth slower
# make lint            ruff and mypy
# make format          ruff, in place
# make test-registry   fetch the real MNIST, Fashion-MNIST and CIFAR-10 and check them
# make test-export     export every network to ONNX and torch.export, and M1 with AOTInductor; minutes
# make test-browser    test the explorer in Chromium, which is installed if it is missing, and in Firefox if it is there
# make test-examples   run every file in examples/ for a few seconds; installs lightning, transformers and optuna
# make test-notebooks  run both notebooks; installs nbclient and ipykernel
# make test-triton     check the Triton kernel without a GPU, in an environment of its own
# make triton-resources  registers, spills and shared memory of the Triton kernels, into results/
# make test-lowest     run the core tests with the oldest version of every dependency; Python 3.10 or 3.11
# make test-arm        compile the C++ kernel for ARM and compare its values with the reference under QEMU
# make test-timm       install timm without torchvision, and test the networks in its registry
# make test-asan       run the C++ kernel's tests and 2,000 random calls under the address sanitizer
# make fuzz            damage 5,000 files, archives and command lines; some minutes
# make soak            kill a training run 200 times, and one on two processes 30 times; hours
# make test-nodes      train on two nodes, cut one of them off, resume; needs root and iproute2
# make dist            build sdist and wheel twice, compare the bytes, check what an index would show
# make clean           remove the environments and the caches of the tools

PY := .venv/bin/python
# Some of the pinned versions need Python 3.11. On 3.10: make CONSTRAINTS= test
CONSTRAINTS ?= constraints.txt
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check $(if $(CONSTRAINTS),--constraint $(CONSTRAINTS))
# Some CPUs advertise AMX but die in oneDNN's AMX bfloat16 path; this instruction set is safe everywhere.
export ONEDNN_MAX_CPU_ISA ?= AVX512_CORE_BF16

.PHONY: help demo explore test test-slow test-export test-browser test-docs docs docs-serve coverage lint format test-registry test-triton triton-resources test-asan fuzz soak test-nodes test-lowest test-arm dist test-timm test-examples test-notebooks clean
.DEFAULT_GOAL := help

help:
	@grep '^# make' Makefile | cut -c3-

.venv/.ok: pyproject.toml constraints.txt
	@echo "Setting up .venv: one to two minutes, about 1.5 GB"
	python3 -m venv .venv
	$(PY) $(PIP_INSTALL) --editable '.[dev]'
	@touch $@

demo: .venv/.ok
	.venv/bin/clustercaps demo

explore: .venv/.ok
	.venv/bin/clustercaps explore

test: .venv/.ok
	$(PY) -m pytest -n 2

test-slow: .venv/.ok
	$(PY) -m pytest -m slow -n 2

test-docs: .venv/.ok
	$(PY) -m pytest tests/test_docs.py tests/docs

# MkDocs and what the site needs; nothing of it is part of the package.
.venv/.docs: .venv/.ok
	$(PY) $(PIP_INSTALL) --editable '.[dev,docs]'
	@touch $@

build/explorer.html: .venv/.ok $(shell find clustercaps/explore clustercaps/models/weights -type f ! -name '*.pyc')
	@mkdir -p build
	.venv/bin/clustercaps explore --no-open --out $@

# The variable hides a notice of the theme about MkDocs 2.
docs: .venv/.docs build/explorer.html
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict
	$(PY) -m pytest -n0 -m site tests/docs
	@echo "open site/index.html"

docs-serve: .venv/.docs build/explorer.html
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs serve

coverage: .venv/.ok
	$(PY) -m pytest -n 2 --cov --cov-report=term-missing:skip-covered

# The second library is there because the sanitizer must find the real __cxa_throw. Tensors that are too
# large must be an error of PyTorch, not of the sanitizer.
test-asan: .venv/.ok
	CLUSTERCAPS_SANITIZE=address CLUSTERCAPS_FUZZ_CASES=2000 \
	ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 \
	LD_PRELOAD="$$(g++ -print-file-name=libasan.so) $$(g++ -print-file-name=libstdc++.so)" \
	$(PY) -m pytest tests/kernels/test_fuzz.py tests/kernels/test_values.py tests/kernels/test_operator.py tests/kernels/test_vote_sums.py tests/kernels/test_conv.py

# Playwright drives the Chromium of the system; it never downloads a browser.
.venv/.browser: .venv/.ok
	$(PY) $(PIP_INSTALL) --editable '.[dev,browser]'
	@touch $@

# The checker of accessibility, for the tests alone.
.browser-tools/node_modules/axe-core/axe.min.js:
	@command -v npm >/dev/null || { echo "npm is missing: install it, on Debian with 'apt-get install npm'" >&2; exit 1; }
	npm install --silent --no-audit --no-fund --ignore-scripts --prefix .browser-tools axe-core@4.14.0

test-browser: .venv/.browser .browser-tools/node_modules/axe-core/axe.min.js
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null \
	|| { [ "$$(id -u)" = 0 ] && apt-get -q update && apt-get -q install -y --no-install-recommends chromium; } \
	|| { echo "Chromium is missing: install it, on Debian with 'apt-get install chromium'" >&2; exit 1; }
	$(PY) -m pytest -m browser

.venv/.examples .venv/.notebooks: .venv/%: .venv/.ok
	$(PY) $(PIP_INSTALL) --editable '.[dev,$(@:.venv/.%=%)]'
	@touch $@

test-examples: .venv/.examples
	$(PY) -m pytest -m examples -n 2

test-notebooks: .venv/.notebooks
	$(PY) -m pytest -m notebooks -n 2

test-registry: .venv/.ok
	$(PY) -m pytest -m registry

test-export: .venv/.ok
	$(PY) tests/export/sweep.py --out results/export.csv
	$(PY) tests/export/sweep.py m1 --formats aoti

fuzz: .venv/.ok
	$(PY) tests/fuzz/run.py --mutants 5000 --out results/fuzz.json

soak: .venv/.ok
	$(PY) tests/training/soak.py --kills 200 --kills-of-two 30

test-nodes: .venv/.ok
	$(PY) tests/training/nodes.py

# No extra of the package: CUDA builds of torch bring triton, and only its interpreter is wanted here.
.venv-triton/.ok: pyproject.toml constraints.txt
	@echo "Setting up .venv-triton: one to two minutes, about 2.1 GB"
	python3 -m venv .venv-triton
	.venv-triton/bin/python $(PIP_INSTALL) --editable '.[dev]' triton==3.7.1
	@touch $@

test-triton: .venv-triton/.ok
	TRITON_INTERPRET=1 .venv-triton/bin/python -m pytest -m triton

triton-resources: .venv-triton/.ok
	.venv-triton/bin/python tests/kernels/gpu/resources.py results/triton-resources.csv

# The oldest versions have no wheels for newer versions of Python: make PYTHON=python3.10 test-lowest
PYTHON ?= python3
.venv-lowest/.ok: pyproject.toml constraints-lowest.txt
	@echo "Setting up .venv-lowest: some minutes, about 6 GB if torch comes with CUDA"
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints-lowest.txt \
	--editable '.[figures,sklearn,train]' pytest hypothesis scipy beartype
	@touch $@

# Without the checks of shapes, whose plugin for pytest needs a newer jaxtyping.
LOWEST_TESTS := $(addprefix tests/,test_public_api.py test_losses.py test_figures.py routing/test_cluster.py \
	layers/test_hooks.py kernels/test_operator.py kernels/test_checks.py models/test_models.py \
	models/test_pretrained.py models/test_memory.py training/test_run.py training/test_checkpoint.py \
	training/test_run_folder.py data/test_load.py data/test_image_files.py data/test_folders.py utils \
	cli/test_cli.py)

test-lowest: .venv-lowest/.ok
	.venv-lowest/bin/python -m pytest -o addopts='-q --import-mode=importlib' $(LOWEST_TESTS)

test-arm: .venv/.ok
	PYTHONPATH=tests $(PY) tests/kernels/arm/check.py

.venv/.release: .venv/.ok
	$(PY) $(PIP_INSTALL) --editable '.[dev,release]'
	@touch $@

# The wheel in dist is built from the sdist, the second one from this folder, with other permissions.
dist: export SOURCE_DATE_EPOCH = $(shell git log -1 --format=%ct 2>/dev/null || echo 1577836800)
dist: .venv/.release
	rm -rf dist build
	$(PY) -m build --no-isolation --outdir dist
	umask 077 && $(PY) -m build --no-isolation --sdist --wheel --outdir build/again
	for file in dist/*; do cmp "$$file" "build/again/$${file#dist/}" || exit 1; done
	$(PY) -m twine check --strict dist/*
	cd dist && sha256sum *

# Without its dependencies: torchvision is not available for every torch, and the tests do without.
test-timm: .venv/.ok
	$(PY) $(PIP_INSTALL) --no-deps timm==1.0.31 pyyaml
	$(PY) -m pytest tests/test_timm.py

lint: .venv/.ok
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

format: .venv/.ok
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

clean:
	rm -rf .venv .venv-triton .browser-tools site build/explorer.html .mypy_cache .pytest_cache .ruff_cache .coverage .venv-lowest dist build
