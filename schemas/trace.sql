-- mokscope trace, schema version 1: what was recorded. Derived results: derived.sql. Readable views: views.sql.
-- Times are INTEGER nanoseconds of one base, CLOCK_REALTIME of the recording host (UTC), unless a column says ticks.
-- Ticks are SM clock cycles of one SM in one launch; clock_fit turns a lane's ticks into nanoseconds. Raw ticks and fits are
-- stored apart, so that a fit can be redone. Event, role and edge ids are unique in a trace (a second module's are offset).
PRAGMA application_id = 0x4d4f4b53; -- 'MOKS'
PRAGMA user_version = 1;

-- One row: the recording. Written when recording starts, finished when it ends.
CREATE TABLE run (
    run_id INTEGER PRIMARY KEY CHECK (run_id = 1), -- always 1
    state TEXT NOT NULL CHECK (state IN ('recording', 'complete', 'cut')), -- recording: still running, or killed (read as cut)
    producer TEXT NOT NULL CHECK (producer IN ('recorder', 'executor', 'importer')), -- who wrote the file
    begin_utc_ns INTEGER NOT NULL,      -- wall clock at start, ns
    end_utc_ns INTEGER,                 -- wall clock at the end, ns; NULL: not finished
    tool_version TEXT NOT NULL,         -- mokscope's version
    git_revision TEXT NOT NULL,         -- revision the tool was built from, '' if unknown
    command TEXT NOT NULL,              -- command line of the recorded program, '' if scrubbed
    host TEXT NOT NULL,                 -- host name, '' if scrubbed
    exit_status INTEGER                 -- of the recorded program, 128+n for a signal; NULL: unknown
) STRICT;

-- Free description of the run: shape, knobs, routing, versions, clocks' state. A few dozen rows, from the application or the recorder.
CREATE TABLE attribute (
    name TEXT PRIMARY KEY,              -- e.g. hidden, comm_sms, routing
    kind TEXT NOT NULL CHECK (kind IN ('shape', 'knob', 'routing', 'version', 'clock', 'note')), -- group it is printed in
    value TEXT NOT NULL,                -- as text; numbers in decimal
    unit TEXT NOT NULL                  -- '' if none
) STRICT, WITHOUT ROWID;

-- One row a GPU (the executor: one row, its virtual machine).
CREATE TABLE device (
    device_id INTEGER PRIMARY KEY,      -- CUDA ordinal in the recorded process
    name TEXT NOT NULL,                 -- e.g. NVIDIA H200
    sm_count INTEGER NOT NULL,          -- multiprocessors
    sm_clock_khz INTEGER,               -- SM clock read at start; NULL: unknown
    globaltimer_step_ns INTEGER,        -- smallest step seen; NULL: not measured
    memory_bytes INTEGER                -- total device memory; NULL: unknown
) STRICT;

-- One row a rank of the layer.
CREATE TABLE rank (
    rank INTEGER PRIMARY KEY,           -- 0..ranks-1
    device_id INTEGER NOT NULL REFERENCES device (device_id), -- GPU it ran on
    process_id INTEGER NOT NULL         -- host process
) STRICT;

-- Line from a device's globaltimer to trace time: trace_ns = globaltimer + offset_ns + drift * (globaltimer - base_ns).
CREATE TABLE device_clock (
    device_id INTEGER PRIMARY KEY REFERENCES device (device_id), -- GPU
    base_ns INTEGER NOT NULL,           -- globaltimer where offset_ns holds
    offset_ns INTEGER NOT NULL,         -- trace time minus globaltimer at base
    drift REAL NOT NULL,                -- ns a ns
    residual_ns INTEGER NOT NULL,       -- largest distance of a reading from the line
    width_ns INTEGER NOT NULL,          -- widest bracket of a reading (hard bound of its error)
    readings INTEGER NOT NULL           -- readings the line rests on
) STRICT;

-- One row an instrumented kernel file (its table of roles, events and edges).
CREATE TABLE module (
    module_id INTEGER PRIMARY KEY,      -- 0..
    name TEXT NOT NULL                  -- from MOKSCOPE_MODULE
) STRICT;

-- Warp roles of a module.
CREATE TABLE role (
    role_id INTEGER PRIMARY KEY,        -- unique in the trace
    module_id INTEGER NOT NULL REFERENCES module (module_id), -- owner
    name TEXT NOT NULL,                 -- label
    class TEXT NOT NULL CHECK (class IN ('compute', 'communicate', 'support')), -- what its lanes count as
    description TEXT NOT NULL           -- a sentence
) STRICT;

-- Readiness edges of a module: who signals, who waits, on which counter.
CREATE TABLE edge (
    edge_id INTEGER PRIMARY KEY,        -- unique in the trace
    module_id INTEGER NOT NULL REFERENCES module (module_id), -- owner
    name TEXT NOT NULL,                 -- e.g. X_READY
    producer_role_id INTEGER NOT NULL REFERENCES role (role_id), -- signals
    consumer_role_id INTEGER NOT NULL REFERENCES role (role_id), -- waits
    granularity TEXT NOT NULL,          -- what the index counts: peer, minibatch, tile row, ...
    scope TEXT NOT NULL CHECK (scope IN ('cta', 'gpu', 'sys')), -- of release and acquire
    slot_reuse INTEGER NOT NULL CHECK (slot_reuse IN (0, 1)), -- 1: waits until a slot has been read
    target TEXT NOT NULL,               -- awaited value in words
    description TEXT NOT NULL           -- a sentence
) STRICT;

-- Event table of a module: what a span, wait or signal means. The only source of classes for every reader.
CREATE TABLE event (
    event_id INTEGER PRIMARY KEY,       -- unique in the trace
    module_id INTEGER NOT NULL REFERENCES module (module_id), -- owner
    name TEXT NOT NULL,                 -- label
    kind TEXT NOT NULL CHECK (kind IN ('span', 'wait', 'signal')), -- table its records are in
    class TEXT NOT NULL CHECK (class IN ('compute', 'communicate', 'overhead', 'container', 'wait')), -- state it gives; container: none
    level INTEGER NOT NULL,             -- 1 task, 2 phase, 3 k block
    edge_id INTEGER REFERENCES edge (edge_id), -- waits and signals; NULL for spans
    argument TEXT NOT NULL,             -- meaning of argument
    small TEXT NOT NULL,                -- meaning of small; 'stall in the span, N-cycle units' is read by the analyzer
    description TEXT NOT NULL           -- a sentence
) STRICT;

-- Target of each counter of each edge, as scheduled. About minibatches x edges + tile rows a rank.
CREATE TABLE edge_target (
    rank INTEGER NOT NULL REFERENCES rank (rank), -- owner of the counter
    edge_id INTEGER NOT NULL REFERENCES edge (edge_id), -- edge
    counter_index INTEGER NOT NULL,     -- index
    target INTEGER NOT NULL,            -- value the consumer waits for (launches for sys edges)
    PRIMARY KEY (rank, edge_id, counter_index)
) STRICT, WITHOUT ROWID;

-- The schedule's tasks of one pass (the same for each launch of the run). Thousands a rank.
CREATE TABLE task (
    rank INTEGER NOT NULL REFERENCES rank (rank), -- rank that runs it
    task_id INTEGER NOT NULL,           -- argument of the task's spans
    phase TEXT NOT NULL,                -- dispatch, gate+up, down, combine
    minibatch INTEGER NOT NULL,         -- minibatch
    expert INTEGER NOT NULL,            -- model's expert id; -1: several or none
    tile_row INTEGER NOT NULL,          -- row / tile rows, or first row / unit rows for communication
    tile_column INTEGER NOT NULL,       -- output column tile
    row_count INTEGER NOT NULL,         -- rows that carry a route
    padding_rows INTEGER NOT NULL,      -- rows that do not
    flops INTEGER NOT NULL,             -- useful floating-point operations
    bytes INTEGER NOT NULL,             -- useful bytes it moves between ranks
    PRIMARY KEY (rank, task_id)
) STRICT, WITHOUT ROWID;

-- GPU kernels as CUPTI saw them (all kernels of the process).
CREATE TABLE kernel (
    kernel_id INTEGER PRIMARY KEY,      -- row number
    device_id INTEGER NOT NULL REFERENCES device (device_id), -- GPU
    context_id INTEGER NOT NULL,        -- CUPTI context
    stream_id INTEGER NOT NULL,         -- CUPTI stream
    correlation_id INTEGER NOT NULL,    -- CUPTI correlation
    grid_id INTEGER NOT NULL,           -- CUPTI grid id
    graph_id INTEGER NOT NULL,          -- CUDA graph, 0: none
    name TEXT NOT NULL,                 -- mangled name
    begin_ns INTEGER NOT NULL,          -- trace time
    end_ns INTEGER NOT NULL,            -- trace time
    grid_x INTEGER NOT NULL, grid_y INTEGER NOT NULL, grid_z INTEGER NOT NULL, -- CTAs
    block_x INTEGER NOT NULL, block_y INTEGER NOT NULL, block_z INTEGER NOT NULL, -- threads
    registers INTEGER NOT NULL,         -- a thread
    static_shared_bytes INTEGER NOT NULL, -- a CTA
    dynamic_shared_bytes INTEGER NOT NULL, -- a CTA
    CHECK (end_ns >= begin_ns)
) STRICT;

-- One instrumented kernel launch: the lanes that carry one grid id.
CREATE TABLE launch (
    launch_id INTEGER PRIMARY KEY,      -- in order of first lane begin
    device_id INTEGER NOT NULL REFERENCES device (device_id), -- GPU
    module_id INTEGER NOT NULL REFERENCES module (module_id), -- whose probes
    grid_id INTEGER NOT NULL,           -- %gridid seen by its lanes
    kernel_id INTEGER REFERENCES kernel (kernel_id) -- the CUPTI record; NULL: none matched
) STRICT;

-- One warp's role in one launch.
CREATE TABLE lane (
    lane_id INTEGER PRIMARY KEY,        -- row number
    launch_id INTEGER NOT NULL REFERENCES launch (launch_id), -- launch
    rank INTEGER NOT NULL REFERENCES rank (rank), -- rank of the layer
    cta INTEGER NOT NULL,               -- linear CTA index in the grid
    cluster INTEGER NOT NULL,           -- linear cluster index, 0 without clusters
    warp INTEGER NOT NULL,              -- warp in the CTA
    role_id INTEGER NOT NULL REFERENCES role (role_id), -- role
    sm INTEGER NOT NULL,                -- multiprocessor at begin
    sm_end INTEGER NOT NULL,            -- multiprocessor at end (differs: the CTA moved, ticks are void)
    closed INTEGER NOT NULL CHECK (closed IN (0, 1)), -- 0: the lane had not ended when it was read
    begin_ticks INTEGER NOT NULL,       -- clock64 at open
    end_ticks INTEGER NOT NULL,         -- clock64 at close; last record's end if not closed
    begin_globaltimer_ns INTEGER NOT NULL, -- globaltimer at open
    end_globaltimer_ns INTEGER NOT NULL, -- globaltimer at close; 0 if not closed
    record_count INTEGER NOT NULL,      -- records the device wrote
    lost_count INTEGER NOT NULL,        -- of these overwritten before they were read
    first_span_id INTEGER NOT NULL, span_count INTEGER NOT NULL, -- its rows of span: ids first .. first + count - 1
    first_wait_id INTEGER NOT NULL, wait_count INTEGER NOT NULL, -- its rows of wait
    first_signal_id INTEGER NOT NULL, signal_count INTEGER NOT NULL -- its rows of signal
) STRICT;

-- Line from a lane's ticks to trace time: ns = base_ns + (ticks - base_ticks) * ns_per_tick. One row a lane.
CREATE TABLE clock_fit (
    lane_id INTEGER PRIMARY KEY REFERENCES lane (lane_id), -- lane
    base_ticks INTEGER NOT NULL,        -- clock64 at the base
    base_ns INTEGER NOT NULL,           -- trace time at the base
    ns_per_tick REAL NOT NULL,          -- slope
    residual_ns INTEGER NOT NULL,       -- largest distance of a sync pair from the line; more than 64 marks a frequency step
    pairs INTEGER NOT NULL              -- sync pairs the line rests on
) STRICT;

-- One span of work. Rows of a lane are contiguous and ordered by begin_ticks, longer first.
CREATE TABLE span (
    span_id INTEGER PRIMARY KEY,        -- row number
    lane_id INTEGER NOT NULL,           -- lane
    begin_ticks INTEGER NOT NULL,       -- 64-bit ticks
    length_ticks INTEGER NOT NULL,      -- duration
    event_id INTEGER NOT NULL,          -- event
    phase INTEGER NOT NULL,             -- kernel's own 4-bit phase
    small INTEGER NOT NULL,             -- see event.small
    argument INTEGER NOT NULL           -- see event.argument
) STRICT;

-- One wait that was not satisfied at once. Order as span.
CREATE TABLE wait (
    wait_id INTEGER PRIMARY KEY,        -- row number
    lane_id INTEGER NOT NULL,           -- lane
    begin_ticks INTEGER NOT NULL,       -- 64-bit ticks
    length_ticks INTEGER NOT NULL,      -- duration
    event_id INTEGER NOT NULL,          -- event; its edge_id is the edge
    counter_index INTEGER NOT NULL,     -- which counter
    awaited INTEGER NOT NULL            -- awaited value, saturating at 65535
) STRICT;

-- One publish: a producer's release store. Order as span.
CREATE TABLE signal (
    signal_id INTEGER PRIMARY KEY,      -- row number
    lane_id INTEGER NOT NULL,           -- lane
    ticks INTEGER NOT NULL,             -- 64-bit ticks
    event_id INTEGER NOT NULL,          -- event; its edge_id is the edge
    counter_index INTEGER NOT NULL,     -- which counter
    value INTEGER NOT NULL              -- added value, saturating at 65535
) STRICT;

-- (clock, globaltimer) pairs of a lane, those of the header included.
CREATE TABLE sync (
    lane_id INTEGER NOT NULL,           -- lane
    ticks INTEGER NOT NULL,             -- clock64
    globaltimer_ns INTEGER NOT NULL,    -- globaltimer, ns
    PRIMARY KEY (lane_id, ticks)
) STRICT, WITHOUT ROWID;

-- Copies and memsets as CUPTI saw them.
CREATE TABLE copy (
    copy_id INTEGER PRIMARY KEY,        -- row number
    device_id INTEGER NOT NULL,         -- GPU
    stream_id INTEGER NOT NULL,         -- CUPTI stream
    correlation_id INTEGER NOT NULL,    -- CUPTI correlation
    kind TEXT NOT NULL,                 -- HtoD, DtoH, DtoD, PtoP, memset, ...
    bytes INTEGER NOT NULL,             -- size
    begin_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL -- trace time
) STRICT;

-- NVTX ranges and marks.
CREATE TABLE marker (
    marker_id INTEGER PRIMARY KEY,      -- row number
    thread_id INTEGER NOT NULL,         -- host thread
    domain TEXT NOT NULL,               -- NVTX domain, '' default
    name TEXT NOT NULL,                 -- message
    begin_ns INTEGER NOT NULL,          -- trace time
    end_ns INTEGER NOT NULL             -- trace time; = begin for a mark
) STRICT;

-- Synchronising calls and CUPTI's own overhead.
CREATE TABLE host_activity (
    host_activity_id INTEGER PRIMARY KEY, -- row number
    kind TEXT NOT NULL,                 -- synchronise, overhead
    name TEXT NOT NULL,                 -- CUPTI's name for it
    begin_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL -- trace time
) STRICT;

-- Everything that was lost or refused, by source: CUPTI drops, lanes without a slot, records overwritten, activity kinds refused.
CREATE TABLE loss (
    loss_id INTEGER PRIMARY KEY,        -- row number
    source TEXT NOT NULL,               -- probes, cupti, nvtx, recorder
    kind TEXT NOT NULL,                 -- e.g. lane, record, activity, refused
    count INTEGER NOT NULL,             -- how many
    detail TEXT NOT NULL                -- a sentence
) STRICT;

-- Waits that timed out, or were still polling when the recorder looked.
CREATE TABLE hang (
    hang_id INTEGER PRIMARY KEY,        -- row number
    rank INTEGER NOT NULL,              -- waiting rank
    cta INTEGER NOT NULL,               -- waiting CTA
    warp INTEGER NOT NULL,              -- waiting warp
    edge_id INTEGER NOT NULL,           -- edge
    counter_index INTEGER NOT NULL,     -- counter
    expected INTEGER NOT NULL,          -- awaited value
    observed INTEGER NOT NULL,          -- value seen last
    task_id INTEGER NOT NULL,           -- task it was in, -1: none
    since_ns INTEGER NOT NULL           -- trace time when the wait began; 0: unknown
) STRICT;
