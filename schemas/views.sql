-- Readable views of a trace: names joined, ticks turned into nanoseconds of trace time. Created in each trace when it is made.
-- The public interface for sqlite3, pandas and others; documented in the man page of the trace format.

-- The run in one row, with the counts that say how big the trace is.
CREATE VIEW v_run AS
SELECT state, producer, tool_version, git_revision, command, host, exit_status,
       datetime(begin_utc_ns / 1000000000, 'unixepoch') AS begin_utc, -- text, UTC
       (end_utc_ns - begin_utc_ns) / 1e9 AS duration_s,               -- wall-clock length; NULL: not finished
       (SELECT count(*) FROM rank) AS rank_count,
       (SELECT count(*) FROM launch) AS launch_count,
       (SELECT count(*) FROM lane) AS lane_count,
       (SELECT ifnull(max(span_id), 0) FROM span) AS span_count,
       (SELECT ifnull(max(wait_id), 0) FROM wait) AS wait_count,
       (SELECT ifnull(max(signal_id), 0) FROM signal) AS signal_count,
       (SELECT count(*) FROM kernel) AS kernel_count,
       (SELECT ifnull(sum(count), 0) FROM loss WHERE kind <> 'refused') AS lost_count
FROM run;

-- GPUs with their clock's line to trace time.
CREATE VIEW v_device AS
SELECT device_id, name, sm_count, sm_clock_khz, globaltimer_step_ns, memory_bytes,
       offset_ns, drift * 1e6 AS drift_ppm, residual_ns, width_ns, readings
FROM device LEFT JOIN device_clock USING (device_id);

-- Events with the names of their edge and its roles.
CREATE VIEW v_event AS
SELECT event_id, module.name AS module, event.name AS event, kind, event.class, level, edge.name AS edge,
       producer.name AS producer, consumer.name AS consumer, edge.scope, slot_reuse,
       argument, small, event.description
FROM event
JOIN module ON module.module_id = event.module_id
LEFT JOIN edge USING (edge_id)
LEFT JOIN role AS producer ON producer.role_id = edge.producer_role_id
LEFT JOIN role AS consumer ON consumer.role_id = edge.consumer_role_id;

-- Lanes in trace time; step_found = 1: the SM clock changed its frequency inside the lane.
CREATE VIEW v_lane AS
SELECT lane_id, launch_id, rank, cta, cluster, warp, role.name AS role, role.class AS role_class, sm, sm_end, closed,
       base_ns + CAST(round((begin_ticks - base_ticks) * ns_per_tick) AS INTEGER) AS begin_ns, -- trace time
       base_ns + CAST(round((end_ticks - base_ticks) * ns_per_tick) AS INTEGER) AS end_ns,     -- trace time
       1 / ns_per_tick AS clock_ghz, residual_ns, residual_ns > 64 AS step_found,
       record_count, lost_count, span_count, wait_count, signal_count
FROM lane
JOIN role USING (role_id)
JOIN clock_fit USING (lane_id);

-- Instrumented launches with their kernel and the extent of their lanes.
CREATE VIEW v_launch AS
SELECT launch.launch_id, launch.device_id, module.name AS module, launch.grid_id, kernel.kernel_id,
       kernel.name AS kernel, stream_id, kernel.begin_ns AS kernel_begin_ns, kernel.end_ns AS kernel_end_ns,
       min(lane.begin_ns) AS lanes_begin_ns, max(lane.end_ns) AS lanes_end_ns, -- trace time
       count(*) AS lane_count, count(DISTINCT rank) AS rank_count, count(DISTINCT sm) AS sm_count,
       sum(closed = 0) AS open_lanes, sum(lost_count) AS lost_count
FROM launch
JOIN module USING (module_id)
LEFT JOIN kernel ON kernel.kernel_id = launch.kernel_id
JOIN v_lane AS lane ON lane.launch_id = launch.launch_id
GROUP BY launch.launch_id;

-- Spans in trace time with names.
CREATE VIEW v_span AS
SELECT span_id, span.lane_id, launch_id, rank, sm, cta, warp, role.name AS role, event.name AS event, event.class, level,
       base_ns + CAST(round((span.begin_ticks - base_ticks) * ns_per_tick) AS INTEGER) AS begin_ns, -- trace time
       base_ns + CAST(round((span.begin_ticks + length_ticks - base_ticks) * ns_per_tick) AS INTEGER) AS end_ns, -- trace time
       length_ticks * ns_per_tick AS duration_ns, phase, span.small, span.argument
FROM span
JOIN lane ON lane.lane_id = span.lane_id
JOIN clock_fit ON clock_fit.lane_id = span.lane_id
JOIN role USING (role_id)
JOIN event USING (event_id);

-- Waits in trace time with the edge they waited on.
CREATE VIEW v_wait AS
SELECT wait_id, wait.lane_id, launch_id, rank, sm, cta, warp, role.name AS role, event.name AS event, edge.name AS edge,
       slot_reuse, scope,
       base_ns + CAST(round((wait.begin_ticks - base_ticks) * ns_per_tick) AS INTEGER) AS begin_ns, -- trace time
       base_ns + CAST(round((wait.begin_ticks + length_ticks - base_ticks) * ns_per_tick) AS INTEGER) AS end_ns, -- trace time
       length_ticks * ns_per_tick AS duration_ns, counter_index, awaited
FROM wait
JOIN lane ON lane.lane_id = wait.lane_id
JOIN clock_fit ON clock_fit.lane_id = wait.lane_id
JOIN role USING (role_id)
JOIN event USING (event_id)
LEFT JOIN edge USING (edge_id);

-- Signals (publishes) in trace time with their edge.
CREATE VIEW v_signal AS
SELECT signal_id, signal.lane_id, launch_id, rank, sm, cta, warp, role.name AS role, event.name AS event,
       edge.name AS edge, slot_reuse, scope,
       base_ns + CAST(round((ticks - base_ticks) * ns_per_tick) AS INTEGER) AS at_ns, -- trace time
       counter_index, value
FROM signal
JOIN lane ON lane.lane_id = signal.lane_id
JOIN clock_fit ON clock_fit.lane_id = signal.lane_id
JOIN role USING (role_id)
JOIN event USING (event_id)
LEFT JOIN edge USING (edge_id);

-- Clock pairs with their distance from the lane's line.
CREATE VIEW v_sync AS
SELECT sync.lane_id, ticks, globaltimer_ns,
       base_ns + CAST(round((ticks - base_ticks) * ns_per_tick) AS INTEGER) AS trace_ns -- trace time
FROM sync JOIN clock_fit USING (lane_id);

-- Kernels as CUPTI saw them, with the instrumented launch they are, if any.
CREATE VIEW v_kernel AS
SELECT kernel.kernel_id, launch_id, kernel.device_id, device.name AS device, stream_id, correlation_id, kernel.grid_id,
       graph_id, kernel.name, begin_ns, end_ns, end_ns - begin_ns AS duration_ns,
       grid_x * grid_y * grid_z AS cta_count, block_x * block_y * block_z AS thread_count,
       registers, static_shared_bytes + dynamic_shared_bytes AS shared_bytes
FROM kernel
JOIN device USING (device_id)
LEFT JOIN launch USING (kernel_id);

-- Copies and memsets with their rate.
CREATE VIEW v_copy AS
SELECT copy_id, device_id, stream_id, correlation_id, kind, bytes, begin_ns, end_ns, end_ns - begin_ns AS duration_ns,
       bytes * 1e9 / nullif(end_ns - begin_ns, 0) AS bytes_per_s
FROM copy;

-- NVTX ranges and marks with their length.
CREATE VIEW v_marker AS
SELECT marker_id, thread_id, domain, name, begin_ns, end_ns, end_ns - begin_ns AS duration_ns FROM marker;

-- Synchronising calls and CUPTI's own overhead with their length.
CREATE VIEW v_host_activity AS
SELECT host_activity_id, kind, name, begin_ns, end_ns, end_ns - begin_ns AS duration_ns FROM host_activity;

-- Tasks with the rank's device.
CREATE VIEW v_task AS
SELECT rank, device_id, task_id, phase, minibatch, expert, tile_row, tile_column, row_count, padding_rows, flops, bytes
FROM task JOIN rank USING (rank);

-- Counter targets with the edge's name.
CREATE VIEW v_edge_target AS
SELECT rank, edge.name AS edge, granularity, counter_index, edge_target.target
FROM edge_target JOIN edge USING (edge_id);

-- Hangs with names: who waited for what.
CREATE VIEW v_hang AS
SELECT hang_id, rank, cta, warp, edge.name AS edge, producer.name AS producer, consumer.name AS consumer,
       counter_index, expected, observed, task_id, since_ns
FROM hang
JOIN edge USING (edge_id)
JOIN role AS producer ON producer.role_id = edge.producer_role_id
JOIN role AS consumer ON consumer.role_id = edge.consumer_role_id;

-- What was lost or refused, largest first.
CREATE VIEW v_loss AS
SELECT source, kind, sum(count) AS count, detail FROM loss GROUP BY source, kind, detail ORDER BY sum(count) DESC;
