# mokscope. `make help` lists the targets. Variables:
#   V=1          show command lines
#   DEBUG=1      no optimisation
#   SAN=...      sanitizers for the C code, e.g. address,undefined or thread
#   WERROR=1     warnings are errors
#   T=PATH       run only the tests whose name contains PATH, e.g. make check T=cli/report
#   CUDA_HOME    the CUDA toolkit, default: where nvcc is; CUDA_HOME= builds without it
#   PREFIX, DESTDIR  where `make install` puts things
# Objects of one set of compilers and flags stand in build/<hash of them>/, so that variants do not mix.

VERSION := $(shell sed -n 's/^\#define MOKSCOPE_VERSION "\(.*\)"/\1/p' probes/version.h)
REVISION := $(shell git rev-parse --short=12 HEAD 2>/dev/null)
CC ?= gcc
PREFIX ?= /usr/local
CUDA_HOME ?= $(patsubst %/bin/nvcc,%,$(firstword $(shell command -v nvcc 2>/dev/null) $(wildcard /usr/local/cuda/bin/nvcc)))
NVCC := $(if $(CUDA_HOME),$(wildcard $(CUDA_HOME)/bin/nvcc))

WARNINGS := -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes $(if $(WERROR),-Werror)
OPTIMISE := $(if $(DEBUG),-O0,-O2) -g
SANITIZE := $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer)
CFLAGS_ALL := -std=c11 -D_GNU_SOURCE $(OPTIMISE) $(WARNINGS) $(SANITIZE) -fPIC -MMD -MP $(CFLAGS)
# The device code is C-like; the host side of a .cu file is C++.
NVCC_ARCHITECTURE := -gencode=arch=compute_90a,code=sm_90a
NVCCFLAGS := -std=c++20 -O3 $(NVCC_ARCHITECTURE) -lineinfo -Ikernels -Iprobes -Xptxas -warn-spills \
             -Xcompiler -fPIC,-Wall -MMD -MP
CUDA_INCLUDE := $(addprefix -isystem ,$(wildcard $(CUDA_HOME)/include $(CUDA_HOME)/extras/CUPTI/include))

HASH := $(shell echo '$(CC) $(CFLAGS_ALL) $(LDFLAGS) $(NVCC) $(NVCCFLAGS)' | sha1sum | cut -c1-10)
B := build
O := $(B)/$(HASH)
Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-7s %s\n' '$(1)' '$(2)')

CUDA_C := $(wildcard kernels/launch*.c analyzer/cmd_run.c)
KERNEL_C := $(filter-out $(CUDA_C),$(wildcard kernels/*.c))
CORE_C := $(KERNEL_C) $(wildcard probes/host/*.c) $(filter-out analyzer/main.c $(CUDA_C),$(wildcard analyzer/*.c))
# What of the recorder knows no CUDA: unit tests link it.
RECORDER_C := $(wildcard probes/recorder/*.c)
RECORDER_CUDA_C := $(addprefix probes/recorder/,clock_reader.c cupti_activity.c driver.c inject.c session.c)
RECORDER_CORE_C := $(filter-out $(RECORDER_CUDA_C),$(RECORDER_C))
SCHEMAS := $(wildcard schemas/*.sql)
LAYER_CU := $(wildcard kernels/*.cu)
# The executor writes traces and stays out of the layer's library.
LAYER_C := $(wildcard kernels/launch*.c) $(filter-out kernels/executor%.c,$(KERNEL_C))
UNIT_TESTS := $(patsubst tests/unit/%.c,$(B)/tests/unit/%,$(wildcard tests/unit/*.c))
BENCHES := $(patsubst tests/bench/%.c,$(B)/tests/bench/%,$(wildcard tests/bench/*.c))
GPU_APPS := $(patsubst tests/gpu/%.cu,$(B)/tests/gpu/%,$(wildcard tests/gpu/*.cu))

object = $(patsubst %,$(O)/%.o,$(1))
SCHEMA_OBJECTS := $(patsubst schemas/%.sql,$(O)/schemas/schema_%.o,$(SCHEMAS))
CORE_OBJECTS := $(call object,$(CORE_C)) $(SCHEMA_OBJECTS)
# Static where Debian ships the archive, so that the binary runs on a machine without these packages.
SYSTEM_LIBRARIES := -lm -ldl -lpthread
RECORDER_LIBRARIES := -l:libsqlite3.a $(SYSTEM_LIBRARIES)
LIBRARIES := -l:libyajl_s.a -l:libz.a $(RECORDER_LIBRARIES)
CMOCKA := -lcmocka

PROGRAMS := $(B)/mokscope $(if $(NVCC),$(B)/libmok.so $(B)/libmokscope_recorder.so $(GPU_APPS))

all: $(PROGRAMS) ## build build/mokscope, and with the CUDA toolkit the layer and the recorder
	@echo "built: $(PROGRAMS)$(if $(NVCC),, (no CUDA toolkit: 'run' and 'record' are not in it))"

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' Makefile | expand -t 16
	@sed -n 's/^#   \(.*\)/  \1/p' Makefile

deps: ## install what a Debian machine lacks
	@sh .ci/deps

demo: deps ## the main job: record the layer (with a GPU) or take the shipped trace, then analyse it and write a report
	@$(MAKE) --no-print-directory all
	@sh tests/demo.sh

check: deps ## all tests that need no GPU (those that do count as skipped without one)
	@$(MAKE) --no-print-directory all tests
	@tests/run $(T)

tests: $(UNIT_TESTS) ## build the unit tests

check-gpu: all ## the GPU tests, on a machine with a Hopper GPU
	@tests/gpu/all.sh check

bench: all $(BENCHES) ## benchmarks that need no GPU
	@for bench in $(BENCHES); do echo "$$bench"; $$bench || exit 1; done

bench-gpu: all ## the table of the README, on a machine with a Hopper GPU
	@tests/gpu/all.sh bench

lint: ## style, include arrows, documentation against the tree
	@tests/run lint/

install: all ## into $(PREFIX)
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/mokscope $(DESTDIR)$(PREFIX)/include
	install $(B)/mokscope $(DESTDIR)$(PREFIX)/bin/
	$(if $(NVCC),install -m 644 $(B)/libmokscope_recorder.so $(B)/libmok.so $(DESTDIR)$(PREFIX)/lib/mokscope/)
	install -m 644 probes/mokscope_probe.h probes/mokscope_describe.h $(DESTDIR)$(PREFIX)/include/

uninstall: ## remove what install put there
	rm -f $(DESTDIR)$(PREFIX)/bin/mokscope $(addprefix $(DESTDIR)$(PREFIX)/include/,mokscope_probe.h mokscope_describe.h)
	rm -rf $(DESTDIR)$(PREFIX)/lib/mokscope

clean: ## remove build/
	rm -rf $(B)

# --- objects ---------------------------------------------------------------------------------------------------------

$(O)/%.c.o: %.c
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(CFLAGS_ALL) $(CFLAGS_FILE) -c $< -o $@

# The reference layer is arithmetic over full-size matrices.
$(O)/kernels/reference.c.o: CFLAGS_FILE = -O3
$(call object,$(CUDA_C) $(RECORDER_CUDA_C)): CFLAGS_FILE = $(CUDA_INCLUDE)
# Only these know version and revision, so that a commit does not rebuild the rest.
$(call object,analyzer/command.c probes/host/trace_write.c): CFLAGS_FILE = -DMOKSCOPE_GIT_REVISION='"$(REVISION)"'
$(call object,analyzer/command.c probes/host/trace_write.c): $(O)/revision

$(O)/revision: FORCE
	@mkdir -p $(@D); echo '$(REVISION)' | cmp -s - $@ || echo '$(REVISION)' > $@

$(O)/%.cu.o: %.cu
	@mkdir -p $(@D)
	$(call say,NVCC,$<)
	$(Q)$(NVCC) $(NVCCFLAGS) -c $< -o $@

$(O)/schemas/schema_%.c: schemas/%.sql
	@mkdir -p $(@D)
	$(call say,SQL,$<)
	$(Q){ echo '/* made from $< by the Makefile */'; echo '#include "probes/host/schema.h"'; echo 'const char schema_$*_sql[] ='; \
	      sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/^/"/' -e 's/$$/\\n"/' $<; echo ';'; } > $@

$(O)/schemas/schema_%.o: $(O)/schemas/schema_%.c
	$(Q)$(CC) $(CFLAGS_ALL) -Wno-overlength-strings -I. -c $< -o $@

# --- programs --------------------------------------------------------------------------------------------------------

ifneq ($(NVCC),)
MOKSCOPE_CUDA := $(call object,$(wildcard kernels/launch*.c) $(wildcard analyzer/cmd_run.c) $(LAYER_CU))
LINK := $(NVCC) $(NVCC_ARCHITECTURE) -cudart static
LINK_C = -Xcompiler '$(SANITIZE)'
else
LINK := $(CC)
LINK_C = $(SANITIZE)
endif

$(B)/mokscope: $(call object,analyzer/main.c) $(CORE_OBJECTS) $(MOKSCOPE_CUDA) $(O)/.linked
	$(call say,LINK,$@)
	$(Q)$(LINK) $(LINK_C) $(filter %.o,$^) $(LIBRARIES) -o $@

$(B)/libmok.so: $(call object,$(LAYER_C) probes/host/error.c $(LAYER_CU)) $(O)/.linked
	$(call say,LINK,$@)
	$(Q)$(LINK) -shared -Xlinker -Bsymbolic $(LINK_C) $(filter %.o,$^) $(SYSTEM_LIBRARIES) -o $@

$(B)/libmokscope_recorder.so: probes/recorder/exports.map $(call object,$(RECORDER_C) $(wildcard probes/host/*.c)) $(SCHEMA_OBJECTS) $(O)/.linked
	$(call say,LINK,$@)
	$(Q)$(CC) -shared $(SANITIZE) -Wl,-z,defs -Wl,--version-script,probes/recorder/exports.map $(filter %.o,$^) $(RECORDER_LIBRARIES) -o $@

# Programs stand outside the hashed folder: link them again when the variant changes.
$(O)/.linked: Makefile $(if $(filter $(HASH),$(shell cat $(B)/latest 2>/dev/null)),,FORCE)
	@mkdir -p $(@D); echo '$(HASH)' > $(B)/latest; touch $@

$(B)/tests/unit/%: $(O)/tests/unit/%.c.o $(CORE_OBJECTS) $(call object,$(RECORDER_CORE_C)) $(O)/.linked
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) $(SANITIZE) $(filter %.o,$^) $(CMOCKA) $(LIBRARIES) -o $@

$(B)/tests/bench/%: $(O)/tests/bench/%.c.o $(CORE_OBJECTS) $(call object,$(RECORDER_CORE_C)) $(O)/.linked
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) $(SANITIZE) $(filter %.o,$^) $(LIBRARIES) -o $@

$(B)/tests/gpu/%: $(O)/tests/gpu/%.cu.o $(O)/.linked
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(LINK) $(filter %.o,$^) -ldl -o $@

FORCE:
.PHONY: all help deps demo check tests check-gpu bench bench-gpu lint install uninstall clean FORCE
.SECONDARY:
.DELETE_ON_ERROR:

-include $(shell find $(O) -name '*.d' 2>/dev/null)
