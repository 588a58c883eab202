# One line a verb; `make help` lists them. The ones that matter: `make demo`, `make demo-spark` and `make test`.
VENV   ?= .venv
PYTHON ?= python3
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
SPARK_STAMP := $(VENV)/.installed-spark
PYTEST := $(BIN)/python -m pytest
COMPILED := $(shell find rocketpy -name '*.pyx' -o -name '*.pxi')
STAGE  := $(PYTHON) scripts/stage.py
# Four workers on two cores: some tests wait. Files in the order of tests/conftest.py.
WORKERS := -n 4 --dist loadfile --no-loadscope-reorder
# Folders of other stages are not even collected: that takes half a minute of CPU time a process.
WITHOUT_JVM := -q --ignore=tests/spark --ignore=tests/interop $(WORKERS)
QUICK := $(WITHOUT_JVM) -m "not long"
# Tests start hundreds of Python processes, each of which would compile its modules again.
unexport PYTHONDONTWRITEBYTECODE
SOURCES := rocketpy pyspark_rocketmq pyspark_rocketmq_store tests bench examples

.DEFAULT_GOAL := help
.PHONY: help setup setup-spark ready peers gcc jdk go etcd demo demo-spark demo-ha test test-spark test-spark-programs test-java-clients test-interop-replicas test-interop test-all check unit interop spark crash sim fuzz bench bench-quick bench-features bench-further bench-pairs bench-ceiling bench-spark bench-sdk flames test-long test-kills test-replication test-failover fmt lint types layers public-api stubs docs clean

help: ## list the verbs
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(STAMP) ## virtual environment with RocketPy and its development tools

$(STAMP): pyproject.toml hatch_build.py scripts/setup.sh $(COMPILED)
	@PYTHON=$(PYTHON) VENV=$(VENV) sh scripts/setup.sh
	@touch $@

setup-spark: $(SPARK_STAMP) ## the same with PySpark, Arrow and what draws the reports

$(SPARK_STAMP): pyproject.toml hatch_build.py scripts/setup.sh $(COMPILED)
	@PYTHON=$(PYTHON) VENV=$(VENV) EXTRAS=spark-connect,charts sh scripts/setup.sh
	@touch $(STAMP) $@

ready: gcc ## all that the tests need: PySpark's environment, JDK, Go, etcd, Apache's jars
	@$(MAKE) --no-print-directory -j2 setup-spark peers

peers: jdk go etcd
	@bash tests/peer/peer.sh fetch

gcc: ## a C compiler, through apt when absent (it compiles hot paths)
	@PYTHON=$(PYTHON) sh scripts/ensure_gcc.sh

go: ## Go, through apt when absent (its official client needs it)
	@sh scripts/ensure_go.sh

etcd: ## etcd, unpacked from Debian's packages when absent (controllers share their state in it)
	@sh scripts/ensure_etcd.sh

jdk: ## JDK and Maven, through apt when absent (the official clients need them)
	@sh scripts/ensure_jdk.sh

demo: setup ## 336,776 flights through a broker: sent, consumed by two groups, checked
	@$(BIN)/python examples/flights_demo.py

demo-spark: setup-spark jdk ## the flights again: streamed by Spark into Parquet, killed half way, joined, drawn
	@$(BIN)/python examples/flights_spark.py

demo-ha: setup ## three replicas under load: the master is killed, the next one stopped; what senders notice, and a picture
	@$(BIN)/python examples/failover_demo.py

test: ## what CI runs on a push: 20 minutes on two cores, 25 in a fresh clone (docs/testing.md)
	@$(STAGE) begin
	@$(STAGE) run "set-up" $(MAKE) --no-print-directory ready
	@$(STAGE) run "format, lint, types, layers" $(MAKE) --no-print-directory check
	@$(STAGE) run "tests without a JVM" env TEST_SAMPLE=1 $(PYTEST) tests $(QUICK)
	@$(STAGE) run "tests of compiled modules, in pure Python" env TEST_SAMPLE=4 ROCKETPY_PURE=1 $(PYTEST) @tests/pure_pass.txt $(QUICK)
	@$(STAGE) run "fuzzing" $(BIN)/python -m tests.fuzz --all --seconds 12 --where-possible
	@$(STAGE) run "Spark, and Apache's clients and broker" $(MAKE) --no-print-directory -j4 -Otarget test-spark test-java-clients test-interop-replicas test-interop test-spark-programs
	@$(STAGE) report

# Four side by side, the programs last: interop tests wait half of the time, and a Python process
# that Spark starts has to answer within ten seconds.
INTEROP_REPLICAS := $(addprefix tests/interop/,controller replication)
SPARK_PROGRAMS := $(addprefix tests/spark/test_,clusters.py readme.py submitted_jobs.py)

test-spark:
	TEST_SAMPLE=1 $(PYTEST) tests/spark $(addprefix --ignore=,$(SPARK_PROGRAMS)) -q -m "not long"

test-spark-programs:
	TEST_SAMPLE=1 $(PYTEST) $(SPARK_PROGRAMS) -q -m "not long"

test-java-clients:
	TEST_SAMPLE=1 $(PYTEST) tests/interop/java_clients -q -m "not long"

test-interop-replicas:
	TEST_SAMPLE=1 $(PYTEST) $(INTEROP_REPLICAS) -q -m "not long"

test-interop:
	TEST_SAMPLE=1 $(PYTEST) tests/interop $(addprefix --ignore=,tests/interop/java_clients $(INTEROP_REPLICAS)) -q -m "not long"

test-all: ready check ## every test with every seed and parameter, in pure Python too: nightly, before a release
	$(PYTEST) tests $(WITHOUT_JVM)
	ROCKETPY_PURE=1 $(PYTEST) tests $(WITHOUT_JVM)
	$(BIN)/python -m tests.fuzz --all --seconds 60 --where-possible
	$(PYTEST) tests/spark -q
	$(PYTEST) tests/interop -q

check: setup-spark fmt-check lint types layers ## formatting, lint, types, layers

unit: setup-spark ## tests that need no JDK
	$(PYTEST) tests $(WITHOUT_JVM) -m "not crash and not long"

interop: setup jdk go ## the official Java and Go clients, mqadmin and broker against ours
	$(PYTEST) tests/interop -q

spark: setup-spark jdk ## the data pipeline: PySpark against our broker, Apache's and store directories
	$(PYTEST) tests/spark -q

crash: setup ## kill -9 loops
	$(PYTEST) tests -q -m crash

sim: setup ## seeded simulation; SEED=n repeats one run
	$(PYTEST) tests/simulation -q

fuzz: gcc setup ## damaged frames into the compiled send path under AddressSanitizer and UBSan for 10 minutes; DURATION=s, SEED=n repeats one case
	@$(BIN)/python -m tests.fuzz --seconds $(or $(DURATION),600) $(if $(SEED),--seed $(SEED))

test-long: setup ## 20,000 seeds of the store, 1,000 of each other world, with progress; SEEDS=n runs fewer
	$(BIN)/python -m tests.simulation $(or $(SEEDS),20000)

test-kills: setup-spark jdk ## kill -9 of Spark's driver and executors while a topic streams into Parquet; KILLS=n times, JOB=archive, BROKER=apache
	$(BIN)/python -m tests.spark.kills $(or $(KILLS),20) --job $(or $(JOB),example) --broker $(or $(BROKER),ours)

test-replication: setup ## kill -9, freezes, cut and slow links, full disks on a master and its slaves under load; ROUNDS=n, SLAVES=n, FLUSH=SYNC_FLUSH
	$(BIN)/python -m tests.replication $(or $(ROUNDS),200) --slaves $(or $(SLAVES),1) --flush $(or $(FLUSH),ASYNC_FLUSH)

test-failover: setup ## 200 rounds of faults on three replicas with a controller under load (about 50 minutes); ROUNDS=n
	@$(BIN)/python -m tests.failover $(or $(ROUNDS),200)

bench: setup jdk ## ours, also without its compiled parts, beside Apache 5.4.0, interleaved, ratios (about 11 minutes); ROWS=key,... a part
	@exec $(BIN)/python -m bench --rows "$(ROWS)"

bench-quick: setup jdk ## the same in about 3 minutes, for a first look
	@exec $(BIN)/python -m bench --quick

bench-features: setup jdk ## the same for transactions, delays, SQL92 filters, ordered and pop consumption (about 9 minutes)
	@exec $(BIN)/python -m bench --features --rows "$(ROWS)"

bench-further: setup jdk ## many connections, topics and keys, large bodies, a long log, a consumer far behind (about 15 minutes)
	@exec $(BIN)/python -m bench --further --rounds 2 --rows "$(ROWS)"

bench-pairs: setup jdk ## a master with a slave, ours and Apache's; and how fast an empty slave catches up (about 6 minutes)
	@exec $(BIN)/python -m bench --pairs --no-pure --rows "$(ROWS)"

bench-ceiling: setup jdk ## ours beside a broker that stores nothing: what the driver allows (about 3 minutes)
	@exec $(BIN)/python -m bench --ceiling --rounds 2

flames: setup ## flame graphs of a send, a pull and a client's send into docs/flames (1 minute)
	@exec $(BIN)/python -m bench.flame

bench-spark: setup-spark jdk ## the data pipeline beside what bounds it: Arrow ceiling, Kafka source, Parquet writer, producer (about 10 minutes)
	@exec $(BIN)/python -m bench.spark

bench-sdk: setup jdk ## what a message costs the client's process, beside aiokafka and nats-py (about 6 minutes); ROWS=key,... a part
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[peers]'
	@exec $(BIN)/python -m bench.sdk --rows "$(ROWS)"

public-api: setup ## write the public names and signatures down anew, after a change on purpose
	$(BIN)/python -m tests.tidy.public_api

stubs: setup ## write the type stubs of derived names anew, after a change of signatures
	@$(BIN)/python -m tests.tidy.stubs

docs: setup ## the guide and the reference as a site in ./site; a link that leads nowhere is an error
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "the site is in site/index.html"

fmt: setup ## format
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix -q $(SOURCES)

fmt-check: setup
	$(BIN)/ruff format --check -q $(SOURCES)

lint: setup
	$(BIN)/ruff check $(SOURCES)

types: setup-spark ## mypy over the package, the tests and the benches
	$(BIN)/mypy

layers: setup
	$(BIN)/lint-imports --no-cache

clean: ## remove what the verbs made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .demo .bench dist site
