#!/bin/bash
# The papers' experiments on one machine of 64 cores and 4 GPUs, in three parts of some minutes each:
#   PART=1 SECONDS_FOR_ALL=290 DMCMC_INSTANCES=... bash benchmarks/papers.sh FOLDER
# Runs that do not finish in time are left out. Results are in FOLDER/NAME/runs.jsonl, one folder per run of an experiment.
# Seeds are the outer loop, so that an early end leaves some runs of every case.
FOLDER=$1 PART=${PART:-1} ALL=${SECONDS_FOR_ALL:-290} BEGUN=$SECONDS
mkdir -p "$FOLDER/configs"
left() { local s=$((ALL - SECONDS + BEGUN)); echo $((s > 1 ? s : 1)); }
gone() { echo $((SECONDS - BEGUN)); }

# run NAME GPUS CORES JOBS CONFIG LIMIT [options]: one experiment; LIMIT: seconds per run; $memory: its memory limit
run() {
  local name=$1 gpus=$2 cores=$3 jobs=$4 config=$5 limit=$6
  shift 6
  [ "$(left)" -gt 8 ] || return
  sed "s/^limits: {time: [0-9]*, memory: \([0-9]*GiB\)/limits: {time: $limit, memory: ${memory:-\1}/" "configs/papers/$config.yaml" \
    > "$FOLDER/configs/$name.yaml"
  CUDA_VISIBLE_DEVICES=$gpus timeout "$(left)" taskset -c "$cores" python3 -m dmcmc experiment \
    "$FOLDER/configs/$name.yaml" --output "$FOLDER/$name" --resume --jobs "$jobs" "$@" > "$FOLDER/$name.out" 2>&1
  echo "$(gone) s: $name $(wc -l < "$FOLDER/$name/runs.jsonl") runs; $(grep -c '"outcome": "done"' "$FOLDER/$name/runs.jsonl") done; $(tail -1 "$FOLDER/$name.out" | cut -c1-150)"
}

# compile CORES CONFIG METHOD: compile the kernels of a method once, so that concurrent processes find them in the cache
compile() {
  CUDA_VISIBLE_DEVICES= timeout "$(left)" taskset -c "$1" python3 - "configs/papers/$2.yaml" "$3" <<'P' > "$FOLDER/compile-$1.out" 2>&1 &
import sys, json
from dmcmc.experiments.job import carry_out, warm_up
from dmcmc.experiments.plan import read_experiment
run = next(run for run in read_experiment(sys.argv[1])[1] if run.method == sys.argv[2])
data = json.loads(json.dumps(run.data))
warm_up({"data": data}, set())
if "budget" in data and "time" in data["budget"]:
    data["budget"]["time"] = 2
carry_out({"data": data})
P
  compiling="$compiling $!"
}

compile_all() {
  compiling=""
  compile 8 dmcmc-table1 "Gibbs CPU"
  compile 10 dmcmc-table1 "MH CPU"
  compile 12 dmcmc-table1 "auto, 60 s"
  compile 14 dmcmc-table1 DPOP
  compile 16 dmcmc-table1 MGM2
  compile 18 dmcmc-table1 DSA
  compile 20 dcop-random dmcmc
  compile 22 dcop-random DGLS
  compile 24 dcop-random "Max-Sum, damping 0.9"
  compile 26 gpube-table1 "BE CPU"
  compile 28 gpube-figure11a "MBE CPU"
  compile 30 dmcmc-table1 "Gibbs CPU, search"
  compile 32 gpube-tables6-10 "auto, 60 s"
  wait $compiling
  echo "$(gone) s: compiled"
}

if [ "$PART" = 1 ]; then # Table 1 on GPUs, and with 60 s per run
  run table1-toulbar2 "" 42-63 22 dmcmc-table1 300 --method "toulbar2, 60 s" & all=$!
  (run table1-gibbs-gpu 0 0-1 1 dmcmc-table1 60 --method "Gibbs GPU"
   run gpube-table1-gpu 0 0-1 1 gpube-table1 30 --method "BE GPU" --method "DPOP GPU") & all="$all $!"
  (run table1-mh-gpu 1 2-3 1 dmcmc-table1 60 --method "MH GPU"
   run gpube-table2-gpu 1 2-3 1 gpube-table2 30 --method "BE GPU" --method "DPOP GPU") & all="$all $!"
  (run table1-search-gpu 2 4-5 1 dmcmc-table1 60 --method "Gibbs GPU, search" --method "MH GPU, search"
   run gpube-table3-gpu 2 4-5 1 gpube-table3 30 --method "BE GPU" --method "DPOP GPU") & all="$all $!"
  (run figure5-gpu 3 6-7 1 dmcmc-figure5 60 --method "Gibbs GPU" --method "MH GPU"
   run cube-gpu 3 6-7 1 cube-table3 60 --method "exact GPU"
   run tables6-10-gpu 3 6-7 1 gpube-tables6-10 30 --method "exact GPU") & all="$all $!"
  compile_all
  run table1-auto "" 8-41 17 dmcmc-table1 300 --method "auto, 60 s"
  run table1-both "" 8-41 17 dmcmc-table1 300 --method "auto with toulbar2, 60 s"
  wait $all
elif [ "$PART" = 3 ]; then # GPUs with most of their memory, missing runs, and grids
  memory=200GiB
  (run table1-gibbs-gpu 0 0-1 1 dmcmc-table1 60 --method "Gibbs GPU"
   run figure11c-gpu 0 0-1 1 gpube-figure11c 30 --method "MBE GPU") & all=$!
  (run table1-mh-gpu 1 2-3 1 dmcmc-table1 60 --method "MH GPU"
   run figure11a-gpu 1 2-3 1 gpube-figure11a 30 --method "MBE GPU"
   run figure4-gpu 1 2-3 1 cp2015-figure4 30 --method "BE GPU" --method "DPOP GPU") & all="$all $!"
  (run cube-gpu 2 4-5 1 cube-table3 120 --method "exact GPU"
   run cube2-gpu 2 4-5 1 cube-table2 60 --method "BP GPU"
   run gpube-table3-gpu 2 4-5 1 gpube-table3 30 --method "BE GPU" --method "DPOP GPU"
   run cp2015-figure5-gpu 2 4-5 1 cp2015-figure5 30 --method "BE GPU" --method "DPOP GPU") & all="$all $!"
  (run tables6-10-gpu 3 6-7 1 gpube-tables6-10 60 --method "exact GPU"
   run figure11b-gpu 3 6-7 1 gpube-figure11b 30 --method "MBE GPU"
   run gpube-table2-gpu 3 6-7 1 gpube-table2 30 --method "BE GPU" --method "DPOP GPU"
   run gpube-table1-gpu 3 6-7 1 gpube-table1 30 --method "BE GPU" --method "DPOP GPU") & all="$all $!"
  memory=""
  run tables6-10-toulbar2 "" 8-15 8 gpube-tables6-10 120 --method "toulbar2, 60 s" & all="$all $!"
  compile_all
  (run tables6-10-cpu "" 8-31 12 gpube-tables6-10 120 --method "auto, 60 s"
   memory=64GiB run tables6-10-cpu "" 8-31 3 gpube-tables6-10 120 --method "exact CPU"
   memory=64GiB run cube-cpu "" 8-31 3 cube-table3 120 --method "exact CPU") & all="$all $!"
  (run cube2-cpu "" 32-35 2 cube-table2 60 --method "BP CPU"
   run gpube-table3-cpu "" 32-45 7 gpube-table3 20 --method "BE CPU" --method "DPOP CPU") & all="$all $!"
  (for config in dcop-scale-free dcop-colouring dcop-random; do
     run $config "" 46-55 10 $config 60 --method "dmcmc with toulbar2"
   done) & all="$all $!"
  run table1-both "" 56-63 4 dmcmc-table1 300 --method "auto with toulbar2, 60 s" & all="$all $!"
  wait $all
else # Table 1 and Fig. 5 on CPU cores, other algorithms at equal time, exact inference on CPUs and GPUs
  (run gpube-table1-gpu 0 0-1 1 gpube-table1 30 --method "BE GPU" --method "DPOP GPU"
   run figure11a-gpu 0 0-1 1 gpube-figure11a 30 --method "MBE GPU") & all=$!
  (run gpube-table2-gpu 1 2-3 1 gpube-table2 30 --method "BE GPU" --method "DPOP GPU"
   run figure11b-gpu 1 2-3 1 gpube-figure11b 30 --method "MBE GPU"
   run figure4-gpu 1 2-3 1 cp2015-figure4 30 --method "BE GPU" --method "DPOP GPU") & all="$all $!"
  (run gpube-table3-gpu 2 4-5 1 gpube-table3 30 --method "BE GPU" --method "DPOP GPU"
   run cp2015-figure5-gpu 2 4-5 1 cp2015-figure5 30 --method "BE GPU" --method "DPOP GPU") & all="$all $!"
  (run cube-gpu 3 6-7 1 cube-table3 60 --method "exact GPU"
   run figure11c-gpu 3 6-7 1 gpube-figure11c 30 --method "MBE GPU"
   run tables6-10-gpu 3 6-7 1 gpube-tables6-10 30 --method "exact GPU"
   run figure5-gpu 3 6-7 1 dmcmc-figure5 60 --method "Gibbs GPU" --method "MH GPU") & all="$all $!"
  compile_all
  (run table1-cpu "" 8-25 9 dmcmc-table1 60 --method DPOP --method MGM --method MGM2 --method DSA --method "Gibbs CPU" \
     --method "MH CPU" --method "Gibbs CPU, search" --method "MH CPU, search"
   run tables6-10-cpu "" 8-25 9 gpube-tables6-10 30 --method "exact CPU" --method "auto, 60 s" --method "toulbar2, 60 s"
   run cube-cpu "" 8-25 4 cube-table3 60 --method "exact CPU") & all="$all $!"
  peers=(--method dmcmc --method "dmcmc with toulbar2" --method DSA --method MGM2 --method DGLS --method toulbar2
    --method "Max-Sum, damping 0.9" --method "Max-Sum, damping 0.7")
  (for config in dcop-random dcop-scale-free dcop-colouring; do
     run $config "" 26-45 20 $config 60 "${peers[@]}"
   done
   run figure11a-cpu "" 26-45 10 gpube-figure11a 20 --method "MBE CPU"
   run figure11b-cpu "" 26-45 10 gpube-figure11b 20 --method "MBE CPU"
   run figure11c-cpu "" 26-45 10 gpube-figure11c 20 --method "MBE CPU") & all="$all $!"
  (run figure5-cpu "" 46-53 4 dmcmc-figure5 60 --method "Gibbs CPU" --method "MH CPU" --method DPOP --method MGM2
   run cp2015-figure4-cpu "" 46-53 4 cp2015-figure4 20 --method "BE CPU" --method "DPOP CPU") & all="$all $!"
  (for table in 1 2 3; do
     run gpube-table$table-cpu "" 54-63 5 gpube-table$table 20 --method "BE CPU" --method "DPOP CPU"
   done
   run cp2015-figure5-cpu "" 54-63 5 cp2015-figure5 20 --method "BE CPU" --method "DPOP CPU") & all="$all $!"
  wait $all
fi
echo "$(gone) s: the end"
