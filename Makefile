# Everything runs in a virtual environment of its own, .venv. Needs Python 3.11 or newer and a package index.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(VENV)/uv/bin/uv
STAMP := $(VENV)/.installed
ORACLES := $(VENV)/.oracles
# pytest keeps its rewritten asserts as bytecode, even where the environment disables bytecode.
# Three test processes keep two cores busy, because each waits now and then for processes that it has started.
WORKERS ?= 3
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal
# Everything: all marks, 100 examples for each property, every Monte Carlo trial, random order.
ALL := -m "" --hypothesis-profile full
ARGS ?=
# Debian packages: PyPI has neither a browser nor TeX.
TOOLS := chromium texlive-latex-base texlive-latex-recommended

.PHONY: demo docs test test-all coverage isas check bench gpu gpu-wheels faults fuzz oracles tools cluster cluster-kubernetes cluster-slurm cluster-mounts cluster-image cluster-smoke format lock install clean
.DEFAULT_GOAL := demo

demo: install  ## train a reference, JEST and its rivals; print the table, write the plots
	$(BIN)/jestlab launch quickstart

docs: install  ## build the documentation from docs/ into site/, which opens from disk: site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

test: install  ## the default test suite: minutes on two cores; ARGS="-k pareto" selects; WORKERS=8 for more cores
	$(PYTEST) -p no:randomly $(ARGS)

test-all: install  ## the default suite plus clusters, the container, Monte Carlo, all docs, other processors
	$(PYTEST) $(ALL) $(ARGS)
	$(MAKE) isas

coverage: install  ## run the default test suite, report line and branch coverage, also of the processes it starts
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n $(WORKERS) --dist worksteal -p no:randomly $(ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

# Sums round differently on other processors: a test that passes under all three doesn't depend on rounding.
isas: install  ## the numeric tests, compiled for AVX2, for AVX, and for SSE 4.2
	set -e; for isa in AVX2:Haswell AVX:Sandybridge SSE4_2:Nehalem; do \
	  XLA_FLAGS="$$XLA_FLAGS --xla_cpu_max_isa=$${isa%:*}" OPENBLAS_CORETYPE=$${isa#*:} \
	  $(PYTEST) -m "not full and not browser" tests/models tests/experiments tests/analysis; \
	done

check: install  ## ruff, mypy, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy .
	$(BIN)/lint-imports

bench: install  ## measure speeds, print tables
	$(BIN)/python tests/benchmarks/bench.py
	$(BIN)/python tests/benchmarks/bench_analysis.py
	$(BIN)/python tests/benchmarks/bench_data.py
	$(BIN)/python tests/benchmarks/bench_jest.py
	$(BIN)/python tests/benchmarks/bench_kubernetes.py
	$(BIN)/python tests/benchmarks/bench_launch.py
	$(BIN)/python tests/benchmarks/bench_pages.py
	$(BIN)/python tests/benchmarks/bench_pareto.py
	$(BIN)/python tests/benchmarks/bench_reuse.py
	$(BIN)/python tests/benchmarks/bench_run.py
	$(BIN)/python tests/benchmarks/bench_selection.py
	$(BIN)/python tests/benchmarks/bench_selection_torch.py
	$(BIN)/python tests/benchmarks/bench_serve.py
	$(BIN)/python tests/benchmarks/bench_store.py
	$(BIN)/python tests/benchmarks/bench_training.py

# No installation: machines with a GPU often lack a network, and have PyTorch and JAX. What they lack is in .wheels.
gpu:  ## measure on one NVIDIA GPU within nine minutes, results in gpu-results/; ARGS="--toy" tries it on the CPU
	$(PYTHON) tests/benchmarks/gpu/run.py $(ARGS)

GPU_PYTHON ?= 3.12
GPU_MACHINE ?= x86_64

gpu-wheels: install  ## download into .wheels/ what images with PyTorch and JAX lack; copy it along with the checkout
	rm -rf .wheels
	$(BIN)/python tests/benchmarks/gpu/wheels.py --python $(GPU_PYTHON) --machine $(GPU_MACHINE) > $(VENV)/gpu-wheels.txt
	$(VENV)/uv/bin/python -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
	  --require-hashes --python-version $(GPU_PYTHON) --implementation cp \
	  $(foreach tag,_2_34 _2_31 _2_28 _2_27 _2_26 _2_24 _2_17 2014 1,--platform manylinux$(tag)_$(GPU_MACHINE)) \
	  --requirement $(VENV)/gpu-wheels.txt --dest .wheels
	du -sh .wheels

faults: install  ## inject faults into real launches, and report what was lost
	$(BIN)/python tests/faults/campaign.py --faults 300
	$(BIN)/python tests/faults/slurm_campaign.py --faults 60
	$(BIN)/python tests/faults/kubernetes_campaign.py --faults 60
	$(BIN)/python tests/faults/shared_campaign.py --faults 60

SECONDS ?= 60

# Coverage guides the search where there is a build of atheris for this Python; else it is at random.
fuzz: install  ## try what others may have written: archives, specs, weights, messages; SECONDS=600 for each
	-$(UV) pip install --quiet --only-binary :all: --require-hashes --python $(BIN)/python --requirement requirements-fuzz.lock
	$(BIN)/python tests/fuzz/fuzz.py --seconds $(SECONDS)

oracles: $(ORACLES)  ## install PyTorch and transformers, which tests and benchmarks compare with

tools:  ## install a browser and LaTeX; tests that need one are skipped where it is missing
	@if command -v chromium >/dev/null && command -v pdflatex >/dev/null && kpsewhich booktabs.sty colortbl.sty xcolor.sty >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $(TOOLS) >/dev/null; \
	else echo "make tools: install $(TOOLS) yourself; without them some tests of reports skip"; fi

cluster-smoke: install  ## one study on Slurm, one JobSet on Kubernetes; each is skipped where it isn't installed
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -m smoke tests/platform/launch

cluster: cluster-slurm cluster-mounts cluster-kubernetes cluster-image  ## build what the tests of clusters run on; they are skipped where it is missing

# Kept outside the checkout: minutes the first time, on each machine, and nothing later.
cluster-kubernetes:
	@tests/cluster/kubernetes/build.sh

# The client has my_print_defaults, without which no database is made.
SLURM := slurm-wlm munge slurmdbd mariadb-server-core mariadb-client-core
SLURM_PROGRAMS := slurmctld slurmd munged sbatch srun slurmdbd mariadbd my_print_defaults

cluster-slurm:  ## install Slurm, on which tests start clusters; they are skipped where it is missing
	@if PATH=$$PATH:/usr/sbin; for name in $(SLURM_PROGRAMS); do command -v $$name >/dev/null || break; done; \
	  command -v $$name >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $(SLURM) >/dev/null; \
	else echo "make cluster-slurm: install $(SLURM) yourself; without them the tests of Slurm skip"; fi

MOUNTS := sshfs openssh-sftp-server

cluster-mounts:  ## install a network file system, which tests mount; they are skipped where it is missing
	@if command -v sshfs >/dev/null && test -x /usr/lib/openssh/sftp-server; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $(MOUNTS) >/dev/null; \
	else echo "make cluster-mounts: install $(MOUNTS) yourself; without them the tests of shared folders skip"; fi

# Without root, apt-get or a network it says what is missing, and the tests of the container are skipped.
cluster-image: install  ## build the container that cluster jobs run, once a machine and again after changes
	@if command -v buildah >/dev/null && command -v debootstrap >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends buildah debootstrap >/dev/null; \
	fi
	$(BIN)/python tests/cluster/image.py

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

install: $(STAMP)

# uv, because an old pip needs minutes to resolve XManager's dependencies. Bytecode is compiled once, here. All that
# is downloaded is pinned by hash, uv and the build backend, too: hence no build isolation.
$(STAMP): requirements.lock requirements-uv.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("jestlab needs Python 3.11 or newer, this is " + sys.version.split()[0] + ": make PYTHON=python3.12 …" if sys.version_info < (3, 11) else 0)'
	test -x $(UV) || $(PYTHON) -m venv $(VENV)/uv
	$(VENV)/uv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes \
	  --requirement requirements-uv.lock
	test -x $(BIN)/python || $(UV) venv --quiet --allow-existing --python $(PYTHON) $(VENV)
	$(UV) pip sync --quiet --require-hashes --compile-bytecode --python $(BIN)/python requirements.lock
	$(UV) pip install --quiet --no-deps --no-build-isolation --python $(BIN)/python --editable .
	$(BIN)/python -m compileall -q experiments platform models analysis
	touch $@

# pip, not uv: pip accepts a build of PyTorch that is already on the machine. Everything else stays as locked.
$(ORACLES): $(STAMP)
	$(UV) pip freeze --quiet --exclude-editable --python $(BIN)/python > $(VENV)/constraints.txt
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["oracles"], sep="\n")' > $(VENV)/oracles.txt
	$(VENV)/uv/bin/python -m pip --python $(BIN)/python install --quiet --disable-pip-version-check \
	  --constraint $(VENV)/constraints.txt --requirement $(VENV)/oracles.txt
	touch $@

# The files hold names, versions and hashes, no addresses: of everything, of what the container holds, of uv, and of
# what JAX needs besides on TPUs and on GPUs.
COMPILE = $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
  --no-emit-index-url --no-emit-find-links --upgrade

lock: install  ## resolve the dependencies anew
	$(COMPILE) --extra dev pyproject.toml --output-file requirements.lock
	echo "atheris" | $(COMPILE) - --output-file requirements-fuzz.lock
	echo "uv" | $(COMPILE) - --output-file requirements-uv.lock
	$(COMPILE) --group worker --constraint requirements.lock --output-file requirements-worker.lock
	set -e; for extra in tpu:tpu cuda12:cuda; do \
	  echo "jax[$${extra%:*}]" | $(COMPILE) --constraint requirements.lock --output-file requirements-$${extra#*:}.lock - \
	    $$(sed -n 's/^\([a-z0-9.-]*\)==.*/--no-emit-package \1/p' requirements.lock); \
	done

clean:
	rm -rf $(VENV)
