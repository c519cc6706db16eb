# `make` lists the targets. `make demo` and `make test` are all that a newcomer needs: both install what is missing.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules
PREFIX ?= /usr/local

TOOLS := xt-compile xt-run xt-freeze xt-replay xt-snapshot xt-triage xt-decide xt-store xt-log
BIN := $(CURDIR)/target/debug
LIBTORCH_DIR := $(or $(LIBTORCH),$(CURDIR)/.libtorch)
# The worker and what links libtorch; everything else builds without it.
TORCH_PACKAGES := -p xt-torch -p xt-trainer -p xt-train
MOBY := .data/moby-dick.txt
export PATH := $(BIN):$(PATH)

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# ---- setting up ----

.PHONY: setup
setup: system libtorch $(MOBY) ## Install and fetch whatever is missing

.PHONY: system
system:
	@missing=; for pair in g++:g++ python3:python3 pip3:python3-pip npm:npm; do \
	  command -v $${pair%%:*} > /dev/null || missing="$$missing $${pair##*:}"; done; \
	if [ -n "$$missing" ]; then echo "installing$$missing" >&2; \
	  sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; \
	  $$sudo apt-get update -qq && $$sudo apt-get install -y -qq $$missing; fi

# Always runs: it is instant when all is there, and does nothing when LIBTORCH is set.
.PHONY: libtorch
libtorch: | system
	@python3 lib/torch/fetch.py .libtorch

$(MOBY): | system
	@python3 examples/fetch.py moby-dick $@

.PHONY: build
build: libtorch ## Build the tools and the worker
	cargo build -p xt -p xt-train

# ---- the main job, on a real book ----

.PHONY: demo
demo: setup ## Train on Moby Dick in custody, freeze, replay bit for bit, verify, sample
	cargo build -p xt -p xt-train
	@examples/moby-dick/demo

.PHONY: example-branches
example-branches: setup ## Branches of Moby Dick, exactly and in a faster regime that must earn its use; takes minutes
	cargo build -p xt -p xt-train
	@examples/moby-dick/branches

# ---- tests ----

.PHONY: test
test: setup ## Run every test; the last line says how many ran
	cargo build -p xt -p xt-train
	@tests/run-all

.PHONY: test-processors
test-processors: build ## Let emulated processors give the same trace; needs qemu-user, and minutes
	cargo test -p xt-train -- --ignored

.PHONY: test-ecosystem
test-ecosystem: build ## Let the programs of others read what these tools write; installs them from PyPI
	@python3 -m venv target/ecosystem
	@target/ecosystem/bin/pip install --quiet model-signing==1.1.1 securesystemslib==1.6.0 pyopenssl
	@target/ecosystem/bin/pip install --quiet tensorboard==2.21.0 dvclive==3.49.1 mlflow-skinny==3.17.2
	@target/ecosystem/bin/pip install --quiet rocrate==0.16.0 "cyclonedx-python-lib[json-validation]==11.12.0"
	@target/ecosystem/bin/pip install --quiet torch==2.13.0 transformers==5.24.0 peft==0.21.2
	@for script in tests/ecosystem/*; do case $$script in *.md) ;; \
	  *) LIBTORCH=$(LIBTORCH_DIR) target/ecosystem/bin/python $$script;; esac; done

.PHONY: check
check: libtorch ## Formatting, lints and documentation, warnings denied
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items --quiet

.PHONY: golden
golden: build ## Rewrite the expected outputs of golden/
	XT_GOLDEN=rewrite cargo test -p xt --test golden

.PHONY: generate
generate: build ## Rewrite man/ and schemas/ from the code
	@for tool in $(TOOLS); do $$tool --generate man > man/$$tool.1; done
	@XT_SCHEMAS=rewrite cargo test --quiet -p xt-contract

.PHONY: bench
bench: build ## Time what matters, in pairs
	cargo build --release -p xt -p xt-train
	@ln -sfn "$(abspath $(LIBTORCH_DIR))/lib" target/release/lib
	@PATH="$(CURDIR)/target/release:$$PATH" benches/start
	@benches/custody
	@PATH="$(CURDIR)/target/release:$$PATH" benches/snapshot
	@LIBTORCH=$(LIBTORCH_DIR) LD_LIBRARY_PATH=$(LIBTORCH_DIR)/lib benches/stages
	@benches/submit

.PHONY: bench-store
bench-store: build ## Time the store against borg, restic, git, casync, ostree and tar; installs those that are missing
	@sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; for program in borg:borgbackup restic:restic casync:casync ostree:ostree; do \
	  command -v $${program%%:*} > /dev/null || $$sudo apt-get install -y -qq $${program##*:} > /dev/null || true; done
	cargo build --release -p xt --bin xt-store
	@LIBTORCH=$(LIBTORCH_DIR) LD_LIBRARY_PATH=$(LIBTORCH_DIR)/lib benches/store

.PHONY: bench-train
bench-train: libtorch ## Time training against plain PyTorch, which is installed from PyPI
	cargo build --release -p xt -p xt-train
	@ln -sfn "$(abspath $(LIBTORCH_DIR))/lib" target/release/lib
	@PATH="$(CURDIR)/target/release:$$PATH" benches/train

# ---- installing ----

.PHONY: install
install: libtorch ## Build with link-time optimisation and install under PREFIX (/usr/local)
	cargo build --profile dist -p xt -p xt-train
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/libexec/xt/lib $(DESTDIR)$(PREFIX)/share/man/man{1,5,7}
	for tool in $(TOOLS); do install target/dist/$$tool $(DESTDIR)$(PREFIX)/bin; done
	install target/dist/xt-train $(DESTDIR)$(PREFIX)/libexec/xt
	for library in $(LIBTORCH_DIR)/lib/lib{torch_cpu,c10}.so $(LIBTORCH_DIR)/lib/lib{gomp,cudart,cupti}*.so*; do \
	  [ ! -e $$library ] || install -m 644 $$library $(DESTDIR)$(PREFIX)/libexec/xt/lib; done
	for section in 1 5 7; do install -m 644 man/*.$$section $(DESTDIR)$(PREFIX)/share/man/man$$section; done

.PHONY: clean
clean: ## Remove what building and the demo made, but not libtorch and data
	cargo clean
	rm -rf demo
