# The commands of the project. Everything is built in build/; the only things changed elsewhere are Debian packages.
.PHONY: run build test test-slow bench bench-mnist lint format sbom asan tsan check-all install clean
.DEFAULT_GOAL := build

SETUP   := tools/setup/setup.sh
JOBS    ?= $(shell nproc)
PREFIX  ?= /usr/local
PYTHONS := -DPython_EXECUTABLE=$(CURDIR)/build/venv/bin/python
export PYTHONDONTWRITEBYTECODE = 1

run: build                     ## build and run the main job
	rm -rf build/demo
	build/discreet demo --out build/demo

build:                         ## build/discreet and build/python
	@$(SETUP) build
	cmake --preset release $(PYTHONS) -DDISCREET_TESTS=OFF
	cmake --build --preset release -j $(JOBS)

test:                          ## every test; ROOM=ledger: those beside the sources of one room
	@$(SETUP) build test
ifdef ROOM
	@test -f discreet/$(ROOM)/CMakeLists.txt || { echo "ROOM=$(ROOM) is not a room of discreet/; choose one of:" \
	    $(patsubst discreet/%/CMakeLists.txt,%,$(wildcard discreet/*/CMakeLists.txt)) >&2; exit 2; }
endif
	cmake --preset release $(PYTHONS) -DDISCREET_TESTS=ON
	cmake --build --preset release -j $(JOBS) $(if $(ROOM),--target $(ROOM)_test)
ifdef ROOM
	cd build/rooms/$(ROOM) && ./$(ROOM)_test --gtest_brief=1
else
	ctest --preset release -j $(JOBS)
endif

test-slow:                     ## what needs longer: fuzzing, wheel, other processors
	@$(SETUP) build test slow
	cmake --preset release $(PYTHONS) -DDISCREET_TESTS=ON
	cmake --build --preset release -j $(JOBS)
	ctest --preset slow

bench:                         ## against the peers, as ratios
	@$(SETUP) build test bench
	cmake --preset bench $(PYTHONS)
	cmake --build --preset bench -j $(JOBS)
	build/venv/bin/python benchmarks/run.py

bench-mnist: build             ## MNIST at epsilon 2.93; MNIST= names the directory of its files
	MNIST="$(MNIST)" build/venv/bin/python benchmarks/mnist.py

lint:                          ## format, clang-tidy, Python types, include direction, proofs, conformance
	@$(SETUP) build test lint
	tools/lint

format:
	@$(SETUP) lint
	git ls-files '*.h' '*.cpp' | xargs clang-format-14 -i

check-all:                     ## sanitizers, fuzzers, kills, faults, tampering, linters; CHECKS= names some
	@$(SETUP) build test slow lint
	tools/check_all.py $(CHECKS)

.PHONY: docs
docs:                          ## the site, build/site; checks every link
	@$(SETUP) docs
	build/venv/bin/python tools/docs/site.py
	NO_MKDOCS_2_WARNING=1 build/venv/bin/mkdocs build --quiet --strict -f tools/docs/mkdocs.yml
	@! grep -rnoE '<(script|link)[^>]* (src|href)="https?:[^"]*' build/site --include=*.html

sbom: build                    ## build/discreet.cdx.json, a CycloneDX bill of materials
	build/venv/bin/python tools/sbom.py build build/discreet.cdx.json

asan tsan:                     ## the C++ tests under sanitizers
	@$(SETUP) --no-python build test
	cmake --preset $@
	cmake --build --preset $@ -j $(JOBS)
	ctest --preset $@ -j $(JOBS)

install: build                 ## the CMake package and the command, to PREFIX
	cmake --install build --prefix $(PREFIX)

clean:
	rm -rf build
