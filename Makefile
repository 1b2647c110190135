# The commands of this repository; `make help` lists them. Each calls a script of tools/.

.PHONY: help setup build deb demo demo-stop test test-clients test-kernels test-real test-bare test-pg-upgrade fuzz install installcheck lint bench bench-full freeze check-features
.NOTPARALLEL:

# As in tools/env.sh; here, so that no shell on the way complains of a locale that is not installed.
export LC_ALL := C.UTF-8
unexport LANGUAGE
ifdef PG_CONFIG
export PG_CONFIG
endif
CRANFIELD ?= $(wildcard ../shared/data/cranfield)

help: ## this list
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

setup: ## install what is missing (apt, pgvector, models); quick when nothing is
	@tools/setup.sh

build: setup ## build and install the development build that demo and test use
	@tools/install.sh dev

ifdef PACKAGES
# Nothing is compiled.
demo: export PACKAGES := $(PACKAGES)
else
demo: build
endif
demo: ## ingest PostgreSQL's manual and a folder of 300 files into a scratch cluster, ask them questions, remember a preference
	@tools/demo.sh

demo-stop: ## stop the demo's cluster
	@tools/demo.sh stop

test: build ## every test: pg_test/, unit tests, tests/
	@tools/test.sh

test-clients: build ## the Python client, its adapters for LangChain and LlamaIndex, and the examples of clients/
	@tools/setup.sh clients
	@tools/test-clients.sh

test-kernels: build ## every test under each instruction set of this machine, on one core and on two (hours)
	@tools/test-kernels.sh

fuzz: setup ## half an hour of fuzzing, guided by coverage; KB_FUZZ_SECONDS=n for another time
	@tools/fuzz.sh

test-real: build ## kb against a real server of S3, and a real embedding server (3 GB from the Python package index, once)
	@tools/test-moto.sh
	@tools/test-real.sh

test-bare: ## demo and test in bare Debians (root, two hours); CASES="german-user:trixie" and COMMANDS=demo for less
	@COMMANDS='$(COMMANDS)' tools/test-bare.sh $(CASES)

test-pg-upgrade: build ## pg_upgrade of a filled database to a newer server with pgvector: NEW=.../pg_config
	@tools/test-pg-upgrade.sh '$(NEW)'

install: ## build for release and install into the server of PG_CONFIG=...
	@tools/setup.sh models
	@tools/install.sh release

deb: setup ## Debian packages of kb, for each of Debian's servers that is here, in .scratch/packages; make demo PACKAGES=folder tries them
	@tools/setup.sh deb
	@tools/deb.sh

installcheck: ## run pg_test/ against the server of PGHOST and PGPORT
	@tools/regress.sh

lint: setup ## rustfmt, clippy, cargo-deny, shellcheck, subjects of commits
	@tools/setup.sh lint
	@tools/lint.sh

bench: ## the benchmarks, on a release build; CRANFIELD=dir (in the form of BEIR) for the retrieval figures, ONNX=dir for ONNX Runtime's, HTML=dir for real pages, PG_TEXTSEARCH=conninfo for its server
	@tools/setup.sh
	@tools/install.sh release
	@BENCH_COMMAND='make bench' CRANFIELD='$(CRANFIELD)' ONNX='$(ONNX)' HTML='$(HTML)' PG_TEXTSEARCH='$(PG_TEXTSEARCH)' bench/run.sh

bench-full: ## what takes longer: filters, tenants, words, the worker's memory, LOCOMO=file (locomo10.json) for memories of dialogues; to 1,200,000 chunks, 1,000,000 memories, 100,000 knowledge bases; on a release build, its figures in .scratch/bench-full.md (hours)
	@tools/setup.sh
	@tools/install.sh release
	@BENCH_COMMAND='make bench-full' BENCH_RESULTS='$(CURDIR)/.scratch/bench-full.md' BENCH_TIMEOUT=14400 LOCOMO='$(LOCOMO)' \
		bench/run.sh --only locomo,worker,many,tenants,filters,grown,keyword,remembered,modules --chunks 1000000 --grown-chunks 400000 \
		--filtered-chunks 500000 --keyword-chunks 500000 --knowledge-bases 100000 --memories 1000000

freeze: build ## keep this version's install script in sql/released: it is released, and changes no more
	@tools/freeze.sh

check-features: setup ## compile-check the features pg15 to pg18
	@tools/check-features.sh
