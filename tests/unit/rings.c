/* Draining rings: lanes in every state, wrapped rings, lost lanes, failing copies, and a random device that goes on while the
 * host reads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../probes/recorder/rings.h"
#include "fake_module.h"
#include "random_source.h"

static struct ring ring;

static void install(uint32_t lanes, uint32_t records) {
    const struct mokscope_ring request = {NULL, NULL, NULL, lanes, records, MOKSCOPE_LEVEL_PHASE, 5};
    struct error error = {0};
    if (ring_install(&ring, &fake_module, &request, 3, &ring, &error)) fail_msg("install: %s", error.message);
    assert_true(ring.readable);
    assert_int_equal(fake.ring.level, MOKSCOPE_LEVEL_PHASE);
    assert_int_equal(fake.ring.role_mask, 5);
}

static int tear_down(void **state) {
    (void)state;
    ring_release(&ring);
    ring_release(&ring); /* again: nothing left */
    int wrong = fake.out_of_bounds + fake.wrong_writes;
    if (wrong)
        print_error("%d accesses out of bounds, %d headers wrongly written\n", fake.out_of_bounds, fake.wrong_writes);
    fake_release();
    return wrong;
}

static struct lane_block *drain(int final) {
    struct lane_block *blocks = (void *)&blocks;
    struct error error = {0};
    if (ring_drain(&ring, final, &blocks, &error)) fail_msg("drain: %s", error.message);
    return blocks;
}

static void free_blocks(struct lane_block *blocks) {
    while (blocks != NULL) {
        struct lane_block *next = blocks->next;
        lane_block_free(blocks);
        blocks = next;
    }
}

/* Ids of the lanes in the blocks as text, open ones with a '+'; frees the blocks. */
static const char *ids(struct lane_block *blocks) {
    static char text[512];
    text[0] = '\0';
    for (const struct lane_block *block = blocks; block != NULL; block = block->next)
        for (uint32_t i = 0; i < block->lane_count; i++)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%u%s ", block->headers[i].cta,
                     block->headers[i].state == MOKSCOPE_LANE_OPEN ? "+" : "");
    free_blocks(blocks);
    return text;
}

static struct fake_lane closed_lane(uint32_t id, uint32_t records) {
    struct fake_lane lane = fake_open(7, id, 0, 0, 1000);
    for (uint32_t i = 0; i < records; i++) fake_span(&lane, 1, 1000 + 10 * i, 1005 + 10 * i, i);
    fake_close(&lane, 9000);
    return lane;
}

static void nothing_yet(void **state) {
    (void)state;
    install(8, 16);
    assert_null(drain(0));
    assert_null(drain(1));
    assert_int_equal(fake.calls, 2); /* an idle look is one small read */
    assert_int_equal(fake.bytes_read, 2 * 2 * sizeof(uint32_t));
    assert_int_equal(ring.lost_lanes, 0);
}

static void states_of_lanes(void **state) {
    (void)state;
    install(8, 16);
    closed_lane(1, 3);
    struct fake_lane open = fake_open(7, 2, 0, 0, 1000);
    closed_lane(3, 0);
    assert_string_equal(ids(drain(0)), "1 3 ");
    assert_int_equal(ring.open_lanes, 1);
    assert_int_equal(ring.taken, 2);
    assert_int_equal(fake.ring.lanes[0].state, MOKSCOPE_LANE_FREE);
    assert_int_equal(fake.ring.lanes[1].state, MOKSCOPE_LANE_OPEN);
    assert_int_equal(fake.ring.lanes[2].state, MOKSCOPE_LANE_FREE);
    assert_string_equal(ids(drain(0)), ""); /* the open one is still running */
    closed_lane(4, 2);
    fake_close(&open, 5000);
    assert_string_equal(ids(drain(0)), "2 4 ");
    assert_int_equal(ring.open_lanes, 0);
    int calls = fake.calls;
    assert_string_equal(ids(drain(0)), "");
    assert_int_equal(fake.calls, calls + 1);
}

/* Lanes still open at the end come as they stand; their slots are not touched. */
static void final_drain(void **state) {
    (void)state;
    install(4, 8);
    struct fake_lane open = fake_open(7, 1, 0, 0, 1000);
    fake_span(&open, 1, 1010, 1020, 77);
    fake_sync(&open, 1030);
    fake_span(&open, 1, 1040, 1050, 78);
    closed_lane(2, 1);
    fake_open(7, 3, 0, 0, 1000);
    fake_open(7, 4, 0, 0, 1000);
    struct lane_block *blocks = drain(1);
    assert_int_equal(blocks->headers[0].count, 3);
    assert_int_equal(blocks->records[blocks->first_record[0]].argument, 77);
    assert_string_equal(ids(blocks), "1+ 2 3+ 4+ ");
    assert_int_equal(ring.open_lanes, 3);
    for (int slot = 0; slot < 4; slot++)
        assert_int_equal(fake.ring.lanes[slot].state, slot == 1 ? MOKSCOPE_LANE_FREE : MOKSCOPE_LANE_OPEN);
}

static void wait_long(const struct fake_lane *lane, uint64_t since) {
    fake.ring.lanes[lane->slot].wait_since = since;
    fake.ring.lanes[lane->slot].wait_index = (uint32_t)since;
}

/* Headers that ring_hangs gives at a time, as "cta:index " texts. */
static const char *hangs(int64_t now_ns) {
    static char text[128];
    struct mokscope_lane_header found[8];
    text[0] = '\0';
    free_blocks(drain(0));
    size_t count = ring_hangs(&ring, now_ns, 100, found, 8);
    for (size_t i = 0; i < count; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%u:%u ", found[i].cta, found[i].wait_index);
    return text;
}

/* A wait is told once, 100 ns after it was first seen, unless it changed, the lane got further or closed in between. */
static void hangs_are_told_once(void **state) {
    (void)state;
    install(8, 16);
    assert_string_equal(hangs(0), "");
    struct fake_lane stuck = fake_open(7, 1, 0, 0, 1000), goes_on = fake_open(7, 2, 0, 0, 1000), ends = fake_open(7, 3, 0, 0, 1000);
    fake_open(7, 4, 0, 0, 1000); /* does not wait */
    wait_long(&stuck, 50);
    wait_long(&goes_on, 50);
    wait_long(&ends, 50);
    assert_string_equal(hangs(1000), "");
    assert_string_equal(hangs(1099), "");
    fake_sync(&goes_on, 2000); /* its wait was satisfied long ago */
    fake_close(&ends, 2000);
    assert_string_equal(hangs(1100), "1:50 ");
    assert_string_equal(hangs(1199), "");
    assert_string_equal(hangs(1200), "2:50 "); /* it did not get any further */
    wait_long(&stuck, 60);
    assert_string_equal(hangs(1300), "");
    assert_string_equal(hangs(1400), "1:60 ");
    fake_close(&stuck, 3000);
    fake_close(&goes_on, 3000);
    assert_string_equal(hangs(9000), "");
    assert_string_equal(hangs(9900), "");
}

/* Those that do not fit come with the next call; none is told twice. */
static void more_hangs_than_fit(void **state) {
    (void)state;
    struct mokscope_lane_header found[2];
    install(8, 16);
    for (uint32_t i = 0; i < 5; i++) {
        struct fake_lane lane = fake_open(7, i, 0, 0, 1000);
        wait_long(&lane, 9);
    }
    free_blocks(drain(0));
    assert_int_equal(ring_hangs(&ring, 0, 10, found, 2), 0);
    for (uint32_t told = 0; told < 5; told += 2) {
        size_t count = ring_hangs(&ring, 10, 10, found, 2);
        assert_int_equal(count, told < 4 ? 2 : 1);
        for (uint32_t i = 0; i < count; i++) assert_int_equal(found[i].cta, told + i);
    }
    assert_int_equal(ring_hangs(&ring, 99, 10, found, 2), 0);
    ring.readable = 0;
    assert_int_equal(ring_hangs(&ring, 1000, 10, found, 2), 0);
}

/* What a block holds of each lane: the header, and as many records as the ring kept, in the ring's own order. */
static void contents(void **state) {
    (void)state;
    install(8, 4);
    static const uint32_t counts[] = {0, 1, 4, 5, 1003};
    for (uint32_t i = 0; i < 5; i++) closed_lane(i, counts[i]);
    struct lane_block *block = drain(0);
    assert_non_null(block);
    assert_null(block->next);
    assert_ptr_equal(block->module, &fake_module);
    assert_int_equal(block->device_id, 3);
    assert_int_equal(block->record_capacity, 4);
    assert_int_equal(block->lane_count, 5);
    for (uint32_t i = 0, first = 0; i < 5; i++) {
        uint32_t count = counts[i], kept = count < 4 ? count : 4;
        const struct mokscope_lane_header *header = &block->headers[i];
        assert_int_equal(header->cta, i);
        assert_int_equal(header->state, MOKSCOPE_LANE_CLOSED);
        assert_int_equal(header->count, count);
        assert_int_equal(header->grid_id, 7);
        assert_int_equal(header->clock_begin, 1000);
        assert_int_equal(header->clock_end, 9000);
        assert_int_equal(block->first_record[i], first);
        for (uint32_t record = count - kept; record < count; record++)
            assert_int_equal(block->records[first + record % 4].argument, record);
        first += kept;
    }
    free_blocks(block);
}

/* Slots are used round and round; a lane that meets a slot in use is lost, and counted. */
static void lost_lanes(void **state) {
    (void)state;
    install(3, 4);
    for (uint32_t i = 0; i < 5; i++) closed_lane(i, 1);
    assert_string_equal(ids(drain(0)), "0 1 2 ");
    assert_int_equal(ring.lost_lanes, 2);
    int calls = fake.calls;
    assert_null(drain(0));
    assert_int_equal(fake.calls, calls + 1);             /* lost lanes are not waited for */
    struct fake_lane open = fake_open(7, 5, 0, 0, 1000); /* slot 2 */
    for (uint32_t i = 6; i < 9; i++) closed_lane(i, 1);
    assert_int_equal(open.slot, 2);
    assert_string_equal(ids(drain(0)), "6 7 ");
    assert_int_equal(ring.lost_lanes, 3);
    assert_int_equal(ring.open_lanes, 1);
    fake_close(&open, 1);
    assert_string_equal(ids(drain(1)), "5 ");
    assert_string_equal(ids(drain(1)), "");
}

/* The count of lanes asked for turns over after 2^32. */
static void count_of_lanes_wraps(void **state) {
    (void)state;
    install(4, 4);
    closed_lane(0, 1);
    closed_lane(1, 1);
    closed_lane(2, 1);
    closed_lane(3, 1);
    assert_string_equal(ids(drain(0)), "0 1 2 3 ");
    *fake.ring.next = UINT32_MAX - 1; /* 2^32 - 2 lanes later: slots 2, 3, then 0 */
    ring.taken = UINT32_MAX - 1;
    for (uint32_t id = 4; id < 7; id++) closed_lane(id, 1);
    assert_string_equal(ids(drain(0)), "6 4 5 ");
    assert_null(drain(0));
}

static void settle_header(void) {
    if (fake.calls == 2) fake.ring.lanes[0].count = 3; /* the counters and the headers have been read once */
}

/* The first copy caught a header half written: CLOSED, with an old count. */
static void torn_header(void **state) {
    (void)state;
    install(4, 8);
    closed_lane(1, 3);
    fake.ring.lanes[0].count = 0;
    fake.before_call = settle_header;
    struct lane_block *block = drain(0);
    assert_int_equal(block->headers[0].count, 3);
    assert_int_equal(block->records[block->first_record[0] + 2].argument, 2);
    free_blocks(block);
}

/* Rings larger than the staging buffer are copied in pieces; sparse large lanes one by one, not with all between them. */
static void large_rings(void **state) {
    (void)state;
    install(40, 1 << 16); /* a mebibyte a lane */
    for (uint32_t i = 0; i < 40; i++) closed_lane(i, i % 3 == 0 ? 1u << 16 : 5);
    struct lane_block *blocks = drain(0);
    uint32_t lane = 0, block_count = 0;
    for (const struct lane_block *block = blocks; block != NULL; block = block->next, block_count++)
        for (uint32_t i = 0; i < block->lane_count; i++, lane++) {
            assert_int_equal(block->headers[i].cta, lane);
            for (uint32_t record = 0; record < block->headers[i].count; record++)
                assert_int_equal(block->records[block->first_record[i] + record].argument, record);
        }
    assert_int_equal(lane, 40);
    assert_true(block_count > 1);
    free_blocks(blocks);
    fake.bytes_read = 0;
    for (uint32_t i = 0; i < 40; i++) closed_lane(i, 5);
    free_blocks(drain(0));
    assert_true(fake.bytes_read < 1 << 20); /* forty times five records, not forty mebibytes */
}

/* One lane larger than the staging buffer. */
static void largest_lane(void **state) {
    (void)state;
    enum { RECORDS = 1 << 21 }; /* 32 MiB */
    install(2, RECORDS);
    closed_lane(1, RECORDS + 3);
    closed_lane(2, 2);
    struct lane_block *blocks = drain(0);
    assert_int_equal(blocks->records[0].argument, RECORDS);
    assert_int_equal(blocks->records[3].argument, 3);
    assert_int_equal(blocks->records[RECORDS - 1].argument, RECORDS - 1);
    assert_string_equal(ids(blocks), "1 2 ");
}

/* --- failures -------------------------------------------------------------------------------------------------------- */

static void install_fails(void **state) {
    (void)state;
    const struct mokscope_ring request = {NULL, NULL, NULL, 8192, 2048, 2, 5};
    struct error error = {0};
    fake.install_code = 2;
    assert_int_equal(ring_install(&ring, &fake_module, &request, 3, NULL, &error), ERROR_FAILURE);
    assert_string_equal(error.message, "cannot install rings of module 'fake' on device 3: cuda error 2");
    assert_string_equal(error.hint, "lower --lanes or --records: 256 MiB of device memory were asked for");
    assert_false(ring.readable);
    assert_null(drain(0)); /* harmless */
    assert_int_equal(fake.calls, 0);
}

/* The n-th access fails, for all n: what had been copied is handed over whole, then the ring is left alone. */
static void every_access_fails(void **state) {
    (void)state;
    int status = ERROR_FAILURE;
    for (int n = 1; status != 0; n++) {
        struct error error = {0};
        struct lane_block *blocks;
        install(16, 1 << 17); /* eight lanes a piece, and copied apart */
        for (uint32_t i = 0; i < 14; i++) closed_lane(i, 3 + i);
        fake_open(7, 14, 0, 0, 1000);
        fake.failing_call = n;
        status = ring_drain(&ring, 1, &blocks, &error);
        uint32_t lanes = 0;
        for (const struct lane_block *block = blocks; block != NULL; block = block->next)
            for (uint32_t i = 0; i < block->lane_count; i++, lanes++) {
                assert_int_equal(block->headers[i].cta, lanes);
                for (uint32_t record = 0; record < block->headers[i].count; record++)
                    assert_int_equal(block->records[block->first_record[i] + record].argument, record);
            }
        free_blocks(blocks);
        if (status == 0) {
            assert_true(n > 15);
            assert_int_equal(lanes, 15);
        } else {
            assert_int_equal(status, ERROR_FAILURE);
            assert_non_null(strstr(error.message, "of module 'fake' on device 3: cuda error 719"));
            assert_false(ring.readable);
            int calls = fake.calls;
            assert_null(drain(1));
            assert_int_equal(fake.calls, calls);
        }
        ring_release(&ring);
        assert_int_equal(fake.out_of_bounds + fake.wrong_writes, 0);
        fake_release();
    }
}

/* --- a device that goes on while the host reads ---------------------------------------------------------------------- */

enum { WARPS = 12, LANE_IDS = 4000 };

static struct {
    struct random_source source;
    struct fake_lane warps[WARPS];
    uint32_t ids[WARPS];
    int running[WARPS], steps_a_call;
    uint32_t next_id, lost, counts[LANE_IDS], got[LANE_IDS];
    int claimed[LANE_IDS], closed[LANE_IDS];
} device;

/* One warp opens, records or closes. Record i of lane id carries id and i. */
static void device_step(void) {
    uint32_t w = (uint32_t)random_below(&device.source, WARPS);
    struct fake_lane *lane = &device.warps[w];
    if (!device.running[w]) {
        if (device.next_id == LANE_IDS) return;
        uint32_t id = device.ids[w] = device.next_id++;
        *lane = fake_open(1 + id / 100, id, 0, 0, id);
        device.running[w] = 1;
        device.claimed[id] = lane->slot >= 0;
        device.lost += lane->slot < 0;
    } else if (random_below(&device.source, 12) == 0) {
        fake_close(lane, 1000000);
        device.running[w] = 0;
        device.closed[device.ids[w]] = 1;
        device.counts[device.ids[w]] = lane->count;
    } else {
        fake_put(lane, (struct mokscope_record){device.ids[w], 0, 1, 0, lane->count});
    }
}

static void device_steps(void) {
    for (int64_t steps = random_between(&device.source, 0, device.steps_a_call); steps > 0; steps--) device_step();
}

/* Every lane once, whole, with the last records it wrote. Returns 0 if not. */
static int take(struct lane_block *blocks, uint32_t capacity) {
    int ok = 1;
    for (const struct lane_block *block = blocks; block != NULL; block = block->next)
        for (uint32_t i = 0; i < block->lane_count; i++) {
            const struct mokscope_lane_header *header = &block->headers[i];
            uint32_t id = header->cta, count = header->count, kept = count < capacity ? count : capacity;
            ok = ok && id < LANE_IDS && device.claimed[id] && device.got[id]++ == 0;
            if (!ok || header->state != MOKSCOPE_LANE_CLOSED) continue;
            ok = device.closed[id] && count == device.counts[id] && header->grid_id == 1 + id / 100 &&
                 header->clock_end == 1000000;
            for (uint32_t record = count - kept; ok && record < count; record++) {
                const struct mokscope_record *r = &block->records[block->first_record[i] + record % capacity];
                ok = r->begin_clock == id && r->argument == record;
            }
        }
    free_blocks(blocks);
    return ok;
}

static void random_device(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        memset(&device, 0, sizeof device);
        device.source = random_seeded(seed);
        uint32_t capacity = 1u << random_between(&device.source, 1, 6);
        install((uint32_t)random_between(&device.source, 1, 40), capacity);
        device.steps_a_call = (int)random_between(&device.source, 0, 60);
        fake.before_call = device_steps;
        int ok = 1;
        for (int round = 0; ok && round < 100; round++) {
            for (int64_t steps = random_between(&device.source, 0, 200); steps > 0; steps--) device_step();
            ok = take(drain(0), capacity);
        }
        fake.before_call = NULL; /* the kernel is over, or hangs */
        ok = ok && take(drain(1), capacity) && ring.lost_lanes == device.lost;
        for (uint32_t id = 0; id < device.next_id; id++) ok = ok && device.got[id] == (uint32_t)device.claimed[id];
        assert_true(!ok || device.next_id > 50);
        ring_release(&ring);
        ok = ok && fake.out_of_bounds + fake.wrong_writes == 0;
        fake_release();
        if (!ok) fail_msg("lanes taken differ from those written: seed %llu", (unsigned long long)seed);
    }
}

int main(void) {
#define TEST(name) cmocka_unit_test_teardown(name, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(nothing_yet),         TEST(states_of_lanes), TEST(final_drain), TEST(hangs_are_told_once),
        TEST(more_hangs_than_fit), TEST(contents),        TEST(lost_lanes),  TEST(count_of_lanes_wraps),
        TEST(torn_header),         TEST(large_rings),     TEST(largest_lane), TEST(install_fails),
        TEST(every_access_fails),  TEST(random_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
