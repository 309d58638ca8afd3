# `make run` and `make test` need only Rust. Anything else that is missing, a C compiler, the
# Postgres server or, for tests, Chromium, is installed once from the system's packages.

CARGO_TARGET_DIR ?= target
export CARGO_TARGET_DIR
export PATH := $(PATH):$(HOME)/.cargo/bin

gensvc := $(CARGO_TARGET_DIR)/debug/gensvc

.PHONY: help run dist test test-s3 s3-server chaos attacks failover upgrade day fuzz schemathesis sdks \
	test-console scale bench audit check check-docs fmt sqlx check-sqlx openapi tools postgres nft \
	faketime node python chromium
.NOTPARALLEL:

help:
	@echo 'make run         start the service, with a private Postgres under data/; config=FILE'
	@echo 'make dist        build an archive with an optimized gensvc, its manual pages and completions'
	@echo 'make test        run all tests, with a separate Postgres under target/, and the console'
	@echo '                 in Chromium; only=NAME: only tests whose path contains NAME'
	@echo 'make test-s3     test files on an S3 server and its faults (needs the network, once)'
	@echo 'make attacks     attack one server, measure its memory and how long others wait: debug=1'
	@echo '                 only=NAME; minutes=60: all attacks at once, beside 100 accounts'
	@echo 'make chaos       inject faults under load and audit the ledger: rounds=20 seconds=5 seed=N'
	@echo 'make failover    lose the primary under load, promote its standby, audit the ledger: rounds=2'
	@echo 'make upgrade     replace servers of the previous release under load, forward and back'
	@echo 'make day         restarts, a failover, new keys and prices under load: minutes=60'
	@echo '                 every=60 (seconds between restarts) clients=6 seed=N'
	@echo 'make fuzz        run the property tests with many cases (cases=N, seed=N)'
	@echo 'make scale       measure the history and usage over 5 million generations (rows=N)'
	@echo 'make bench       compare gensvc with a bare proxy: cases=accounts,hot,stream seconds=5'
	@echo '                 connections=64 (docs/performance.md)'
	@echo 'make audit       check Cargo.lock against security advisories (needs the network)'
	@echo 'make schemathesis  fuzz the API from its OpenAPI document (seed=N)'
	@echo 'make sdks        run the packages of OpenAI, Anthropic and others (needs the network)'
	@echo 'make test-console  the last part of make test: the console in Chromium; shots=FOLDER for'
	@echo '                 screenshots of all pages'
	@echo 'make check       check formatting, lints and .sqlx, as CI does'
	@echo 'make check-docs  run the examples of README.md and docs/'
	@echo 'make fmt         format the code'
	@echo 'make sqlx        regenerate .sqlx after a change of SQL or schema'
	@echo 'make openapi     regenerate docs/openapi.json after a change of the API'

# A debug build: it compiles far sooner, and is fast enough to try things out.
#
# On a terminal the server runs in a foreground job of its own, so that only it gets Ctrl-C and make
# sees it exit normally, instead of being interrupted itself. Exit codes 146 and 148 mean Ctrl-Z,
# which would leave it stopped: it is resumed.
serve = $(gensvc) $(if $(config),--config '$(config)')
run: tools $(if $(DATABASE_URL),,postgres)
	@[ -x $(gensvc) ] || echo 'Building gensvc: some minutes now, seconds after a change.'
	@cargo build
	@case "$$(ps -o stat= -p $$$$ 2>/dev/null)" in \
	*+*) set -m; $(serve); code=$$?; \
		while [ $$code = 146 ] || [ $$code = 148 ]; do fg >/dev/null; code=$$?; done; \
		exit $$code ;; \
	*) exec $(serve) ;; \
	esac

# Runs on machines with the same or a newer glibc.
name = gensvc-$$($(release) --version | cut -d' ' -f2)-$$(uname -s -m | tr 'A-Z ' 'a-z-')
release := $(CARGO_TARGET_DIR)/release/gensvc
dist: tools
	@cargo build --release --locked --bin gensvc
	@set -e; name=$(name); folder=$(CARGO_TARGET_DIR)/dist/$$name; \
	rm -rf $$folder; mkdir -p $$folder/completions; \
	cp $(release) LICENSE README.md config/default.toml $$folder; \
	$(release) man --folder $$folder/man >/dev/null; \
	for shell in bash fish zsh; do \
		$(release) completions $$shell > $$folder/completions/gensvc.$$shell; \
	done; \
	tar -C $(CARGO_TARGET_DIR)/dist -czf $(CARGO_TARGET_DIR)/dist/$$name.tar.gz $$name; \
	echo "Wrote $(CARGO_TARGET_DIR)/dist/$$name.tar.gz. It needs $$(getconf GNU_LIBC_VERSION) or newer."

# Gives the rest of a recipe a private Postgres in DATABASE_URL and stops it in the end. A
# DATABASE_URL from outside is ignored: tests create and drop databases.
database := DATABASE_URL= GENSVC_LOG=warn GENSVC_DATA_DIR=target/test-data $(gensvc) database
with_postgres = trap 'exit 130' HUP INT TERM; trap '$(database) stop >/dev/null' EXIT; \
	DATABASE_URL=$$($(database) start) || exit; export DATABASE_URL;
# Migrates template1, which `create database` copies, so that tests need not run the migrations.
# Recreates the cluster if the migrations changed.
with_template = sum=$$(cksum migrations/*.sql | cksum); \
	[ "$$sum" = "$$(cat target/test-data.migrations 2>/dev/null)" ] || { \
		rm -f target/test-data.migrations; $(database) remove --yes >/dev/null || exit; }; \
	$(with_postgres) \
	DATABASE_URL=$$(echo "$$DATABASE_URL" | sed 's|///gensvc?|///template1?|') \
		$(gensvc) migrate >/dev/null || exit; \
	echo "$$sum" >target/test-data.migrations;

# First removes the files of earlier runs, over a gigabyte each.
test: tools postgres $(if $(only),,chromium)
	@rm -rf $(CARGO_TARGET_DIR)/tmp/*
	@cargo build
	@( $(with_template) cargo test --no-fail-fast $(if $(only),--lib --test it -- $(only)) ); \
	code=$$?; [ $$code != 130 ] || exit $$code; \
	[ $$code = 0 ] || \
		echo 'To run one test again: make test only=NAME, such as only=v1::credits::'; \
	$(if $(only),,tests/console/run.sh || { \
		code=1; echo 'To run the tests of the console again: make test-console'; };) \
	exit $$code

# Files on an S3 server of the Rust registry, which is built once.
s3_server := $(CARGO_TARGET_DIR)/tools/bin/s3s-fs
test-s3: tools postgres s3-server
	@cargo build
	@$(with_template) export S3_SERVER="$$(realpath $(s3_server))"; \
	cargo test --test it -- --ignored s3::

s3-server:
	@[ -x $(s3_server) ] || cargo install --quiet --locked --debug --features binary \
		--root $(CARGO_TARGET_DIR)/tools --version 0.14.1 s3s-fs

# Runs its own database, servers and upstreams on loopback addresses, and stops them. previous=PROGRAM:
# the second server is of another release, whose known defects are reported as violations. Files are
# stored on an S3 server, where make test-s3 has built it; with s3= in a folder.
previous ?=
rounds ?= 20
seconds ?= 5
s3 ?= $(abspath $(wildcard $(s3_server)))
chaos: tools postgres faketime
	@cargo test --quiet --test trials -- chaos --rounds $(rounds) --seconds $(seconds) \
		$(if $(seed),--seed $(seed)) $(if $(previous),--previous $(previous)) $(if $(s3),--s3 $(s3))

# Its database, server and upstream are its own, as those of chaos. On a release build.
attacks: minutes =
attacks: only =
attacks: tools postgres
	@cargo test --quiet $(if $(debug),,--release) --test trials -- attacks --true-clocks \
		$(if $(only),--only '$(only)') $(if $(minutes),--minutes $(minutes))

# As above, with two databases. Each round loses the primary twice.
failover: rounds = 2
failover: tools postgres nft faketime
	@cargo test --quiet --test trials -- failover --rounds $(rounds) --seconds $(seconds) \
		$(if $(seed),--seed $(seed)) $(if $(previous),--previous $(previous))

minutes ?= 60
every ?= 60
clients ?= 6
day: tools postgres faketime
	@cargo test --quiet --test trials -- day --minutes $(minutes) --every $(every) \
		--clients $(clients) $(if $(seed),--seed $(seed))

# tests/trials/day/previous names the commit of the previous release; it is built once.
upgrade: tools postgres faketime
	@previous=$$(tests/trials/day/previous.sh) && \
		cargo test --quiet --test trials -- day --previous "$$previous" \
		--seconds $(seconds) --clients $(clients) $(if $(seed),--seed $(seed))

cases ?= 20000

# Property tests with many cases, fewer for costly ones. Takes some minutes. To reproduce a failure
# use the same number of cases and the printed seed.
fuzz: tools postgres
	@cargo build
	@$(with_template) seed='$(seed)'; \
	PROPTEST_RNG_SEED=$${seed:-$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}; \
	PROPTEST_CASES=$$(( $(cases) / 5 )); FUZZ_CASES=$(cases); \
	export PROPTEST_RNG_SEED PROPTEST_CASES FUZZ_CASES; \
	echo "make fuzz cases=$(cases) seed=$$PROPTEST_RNG_SEED"; \
	cargo test --lib && cargo test --test it -- fuzz:: ledger::property::; code=$$?; \
	echo "That was make fuzz cases=$(cases) seed=$$PROPTEST_RNG_SEED"; exit $$code

check: tools check-sqlx
	cargo fmt --check
	cargo clippy --all-targets -- -D warnings
	cargo clippy --test trials --test scale --test bench -- -D warnings

check-docs: tools postgres
	@{ command -v curl && command -v jq; } >/dev/null || { \
		echo 'curl and jq, which the examples use, are missing.'; \
		$(call install,curl jq,curl jq,curl jq,curl jq,curl jq); }
	@cargo build
	@tests/docs/run.sh

fmt:
	cargo fmt

# The compiler describes every query to target/sqlx, against an empty database with the schema of
# migrations/. psql creates that, and any earlier build can start Postgres: while .sqlx is out of
# date, the program itself may not build.
describe = [ -x $(gensvc) ] || cargo build || exit; $(with_postgres) \
	export PGOPTIONS='-c client_min_messages=warning'; psql='psql -qXv ON_ERROR_STOP=1'; \
	$$psql "$$DATABASE_URL" -c 'drop database if exists sqlx' \
		-c 'create database sqlx template template0' || exit; \
	DATABASE_URL=$$(echo "$$DATABASE_URL" | sed 's|///gensvc?|///sqlx?|'); \
	for file in migrations/*.sql; do $$psql "$$DATABASE_URL" -f "$$file" || exit; done; \
	rm -rf target/sqlx && mkdir target/sqlx && touch src/lib.rs tests/it/main.rs && \
	SQLX_OFFLINE=false SQLX_OFFLINE_DIR="$(CURDIR)/target/sqlx" cargo check --quiet --all-targets

sqlx: tools postgres
	@$(describe) && rm -rf .sqlx && mv target/sqlx .sqlx

check-sqlx: tools postgres
	@$(describe) && diff -r .sqlx target/sqlx || { echo 'Run make sqlx and commit .sqlx.'; exit 1; }
	@echo '.sqlx is up to date.'

openapi: tools postgres
	@cargo build
	@$(with_template) export UPDATE_OPENAPI=1; \
	cargo test --test it recorded_answers && cargo test --test it openapi

rows ?= 5000000

scale: tools postgres
	@cargo build --release
	@$(with_postgres) cargo test --release --test scale -- $(rows)

connections ?= 64

# Its database, servers and upstream are its own, as those of chaos.
bench: cases = accounts,hot,stream
bench: tools postgres
	@cargo test --quiet --release --test bench -- --cases $(cases) --seconds $(seconds) \
		--connections $(connections)

audit: tools
	@command -v cargo-audit >/dev/null || cargo install cargo-audit --locked
	cargo audit

examples ?= 50

# Not part of make test: it installs Schemathesis from the Python registry, under target/.
schemathesis: tools postgres
	@cargo build
	@seed=$(or $(seed),1) examples=$(examples) tests/schemathesis/run.sh

# Not part of make test, but of CI: it installs the packages from the registries, under target/.
sdks: tools postgres python node
	@cargo build
	@tests/sdks/run.sh

# Puppeteer and axe come from the npm registry, under target/.
test-console: tools postgres chromium
	@cargo build
	@SHOTS=$(shots) tests/console/run.sh

tools:
	@command -v cargo >/dev/null || \
		{ echo 'Rust is missing: install it from https://rustup.rs, then try again.'; exit 1; }
	@command -v cc >/dev/null || { \
		echo 'A C compiler is missing, which some Rust libraries need.'; \
		$(call install,gcc libc6-dev,gcc glibc-devel,build-base,gcc,gcc); }

node:
	@command -v node >/dev/null && command -v npm >/dev/null || { \
		echo 'Node and npm, which run JavaScript, are missing.'; \
		$(call install,nodejs npm,nodejs npm,nodejs npm,nodejs npm,node); }

python:
	@python3 -c 'import ensurepip, venv' 2>/dev/null || { \
		echo 'Python 3 with venv, which runs its packages, is missing.'; \
		$(call install,python3 python3-venv,python3,python3 py3-pip,python,python); }

chromium: node
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || \
		command -v google-chrome >/dev/null || { \
		echo 'Chromium, in which the console is tested, is missing.'; \
		$(call install,chromium,chromium,chromium,chromium,--cask chromium); }

# Where the program itself looks.
postgres:
	@ls /usr/lib/postgresql/*/bin/initdb /usr/pgsql-*/bin/initdb \
		/opt/homebrew/opt/postgresql*/bin/initdb /usr/local/opt/postgresql*/bin/initdb \
		/usr/libexec/postgresql*/initdb /usr/local/pgsql/bin/initdb 2>/dev/null | grep -q . \
		|| command -v initdb >/dev/null || { \
		echo 'The Postgres server is not installed. Installing it sets up no system-wide database.'; \
		$(call install,postgresql,postgresql-server,postgresql,postgresql,postgresql@17); }

# Where packets cannot be dropped, the proxy of the failover stops forwarding instead.
nft:
	@export PATH="$$PATH:/usr/sbin:/sbin"; [ "$$(uname)" != Linux ] || \
		{ command -v nft && command -v ip; } >/dev/null || ( \
		echo 'nftables and iproute2, which drop packets, are missing.'; \
		$(call install,nftables iproute2,nftables iproute,nftables iproute2,nftables iproute2,) \
		) || true

# Lets `make chaos` run servers with wrong clocks.
faketime:
	@ls /usr/lib/*/faketime/libfaketimeMT.so.1 /usr/lib*/faketime/libfaketimeMT.so.1 \
		/usr/local/lib/faketime/libfaketimeMT.so.1 /usr/lib/libfaketimeMT.so.1 2>/dev/null \
		| grep -q . || [ "$$(uname)" != Linux ] || { \
		echo 'libfaketime, which fakes the clock of a program, is missing.'; \
		$(call install,libfaketime,libfaketime,libfaketime,libfaketime,libfaketime); }

# $(call install,packages of apt-get,of dnf,of apk,of pacman,of brew)
install = as=; [ "$$(id -u)" = 0 ] || as=sudo; tell=; \
	if command -v apt-get >/dev/null; then \
		tell="$$as apt-get install $(1)"; set -- $$as sh -c '$(apt_install)' sh $(1); \
	elif command -v dnf >/dev/null; then set -- $$as dnf install -y $(2); \
	elif command -v apk >/dev/null; then set -- $$as apk add $(3); \
	elif command -v pacman >/dev/null; then set -- $$as pacman -S --needed --noconfirm $(4); \
	elif command -v brew >/dev/null; then set -- brew install $(5); \
	else echo 'No known package manager found: install it yourself, then try again.'; exit 1; \
	fi; \
	echo "Installing, once:" $${tell:-$$*}; \
	"$$@" || { echo 'Installation failed: install it yourself, then try again.'; exit 1; }

# Debian would also create and start a system-wide database. A temporary file prevents that.
apt_install = folder=/etc/postgresql-common/createcluster.d; file=$$folder/gensvc.conf; \
	trap "rm -f $$file; rmdir $$folder 2>/dev/null" EXIT; trap "exit 130" HUP INT TERM; \
	mkdir -p $$folder && echo create_main_cluster = false >$$file; \
	export DEBIAN_FRONTEND=noninteractive; apt-get -qq update; \
	apt-get -qqy install --no-install-recommends "$$@" >/dev/null
