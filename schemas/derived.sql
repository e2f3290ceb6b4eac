-- mokscope trace: results of `mokscope analyze`, stored beside what was recorded. Everything here can be computed again: the
-- tables are dropped and made anew by each analysis. Version of these tables: analysis.derived_version.
DROP TABLE IF EXISTS analysis;
DROP TABLE IF EXISTS figure;
DROP TABLE IF EXISTS partition;
DROP TABLE IF EXISTS wait_by_edge;

-- One row: who computed the results.
CREATE TABLE analysis (
    analysis_id INTEGER PRIMARY KEY CHECK (analysis_id = 1), -- always 1
    derived_version INTEGER NOT NULL,   -- of these tables: 1
    tool_version TEXT NOT NULL,         -- mokscope's version
    git_revision TEXT NOT NULL,         -- revision the tool was built from, '' if unknown
    iteration_count INTEGER NOT NULL,   -- iterations in the trace
    used_count INTEGER NOT NULL,        -- of these used
    notes TEXT NOT NULL                 -- what a reader must know beside the figures, a line each
) STRICT;

-- One row a figure and scope (`mokscope analyze --definitions`). A few hundred.
CREATE TABLE figure (
    id TEXT NOT NULL,                   -- definition
    scope TEXT NOT NULL,                -- all, rank R, role NAME, ...
    value REAL,                         -- in unit; NULL: denominator is 0
    unit TEXT NOT NULL,                 -- '' for a share or pure number, ns, FLOP/s
    numerator REAL,                     -- sum over iterations; the median for times
    denominator REAL NOT NULL,          -- sum over iterations; 1 for times
    window_ns INTEGER NOT NULL,         -- sum of the iterations' windows; 0: the figure has none
    iterations INTEGER NOT NULL,        -- how many it rests on
    p5 REAL, p95 REAL,                  -- of the iterations' own values
    low REAL, high REAL,                -- value with the clock error against and for it
    clock_error_ns INTEGER NOT NULL,    -- 0: rests on no comparison of clocks
    PRIMARY KEY (id, scope)
) STRICT, WITHOUT ROWID;

-- Lane time by state, summed over the used iterations; the states sum to lane_ns. Roles + ranks + ranks x roles + SMs rows.
CREATE TABLE partition (
    partition_id INTEGER PRIMARY KEY,   -- row number
    grouping TEXT NOT NULL CHECK (grouping IN ('total', 'role', 'rank', 'rank_role', 'sm')), -- what a row is for
    rank INTEGER,                       -- NULL: all
    role_id INTEGER,                    -- NULL: all
    device_id INTEGER,                  -- NULL: all
    sm INTEGER,                         -- NULL: all
    lanes INTEGER NOT NULL,             -- lanes, over all iterations
    lane_ns INTEGER NOT NULL,           -- sum of the lanes' windows
    compute_ns INTEGER NOT NULL, communicate_ns INTEGER NOT NULL, wait_ns INTEGER NOT NULL, -- time in each state
    overhead_ns INTEGER NOT NULL, idle_ns INTEGER NOT NULL, unknown_ns INTEGER NOT NULL,    -- time in each state
    stalled_ns INTEGER NOT NULL,        -- part of compute and communicate that spans report as stalled
    CHECK (compute_ns + communicate_ns + wait_ns + overhead_ns + idle_ns + unknown_ns = lane_ns)
) STRICT;

-- Waiting by edge: each nanosecond has one owner. A few dozen rows a rank.
CREATE TABLE wait_by_edge (
    rank INTEGER NOT NULL,              -- of the waiting lane
    role_id INTEGER NOT NULL,           -- of the waiting lane
    edge_id INTEGER,                    -- edge waited on; NULL: the wait names none
    owner_edge_id INTEGER,              -- edge that owns the time (definition of exposed.in_kernel)
    total_ns INTEGER NOT NULL,          -- over the used iterations
    count INTEGER NOT NULL,             -- waits of which the owner has a part
    max_ns INTEGER NOT NULL,            -- largest such part
    communication INTEGER NOT NULL CHECK (communication IN (0, 1)) -- 1: the owner carries communication
) STRICT;
