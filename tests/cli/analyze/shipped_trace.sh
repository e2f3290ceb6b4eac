# The real trace in the repository: the parts of every partition sum to its whole, and the figures are those of the recording.
# Exact where they are counts or CUPTI's times; within 3 % where they rest on lane clocks.
trace=$MOKSCOPE_ROOT/tests/data/h200_glm52_4ranks.db.gz
mokscope analyze --no-store --json "$trace" >analysis.json
python3 - <<'END'
import json
with open("analysis.json", encoding="utf-8") as file:
    analysis = json.load(file)
for row in analysis["partition"]:
    parts = sum(row[state + "_ns"] for state in ("compute", "communicate", "wait", "overhead", "idle", "unknown"))
    if parts != row["lane_ns"]:
        print("parts do not sum to the whole:", row)
figures = {(f["id"], f["scope"]): f for f in analysis["figures"]}
exact = {("time.kernel", "all"): 1243421, ("probe.lost", "all"): 0, ("padding", "all"): 46080 / 373760,
         ("quantisation", "all"): 1 - 2920 / 2976, ("expert.imbalance", "all"): 546 / 512}
near = {("work.rate", "all"): 1855425871872 / 0.003762488, ("exposed.in_kernel", "all"): 0.0382, ("overlap.of_comm", "all"): 0.884,
        ("lanes.capacity_overlap", "all"): 0.791, ("tail", "compute lanes"): 0.0134}
for key, value in exact.items():
    if abs(figures[key]["value"] - value) > 1e-12 * abs(value):
        print(key, "is", figures[key]["value"], "not", value)
for key, value in near.items():
    if abs(figures[key]["value"] / value - 1) > 0.03:
        print(key, "is", figures[key]["value"], "not about", value)
if analysis["run"]["shape"]["model"] != "glm-5.2" or analysis["run"]["ranks"] != 4:
    print("wrong run", analysis["run"])
print(len(analysis["partition"]) > 100, analysis["figures"][0]["iterations"])
END
