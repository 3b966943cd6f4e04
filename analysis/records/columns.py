"""The columns of a campaign's tables, and what their cells may hold.

docs/reference/records.md says what each column means.
"""

from collections.abc import Mapping

PROCESS_COLUMNS: Mapping[str, type] = {
    "trial": str, "process": int, "order": int, "status": str, "reason": str,
    "window_steps": float, "parameters": float, "check": str, "check_reason": str,
    "loss_error": float, "gradient_error": float, "trajectory_error": float,
    "peak_memory_bytes": float, "build_seconds": float, "proof_seconds": float, "started": str,
    "release": str, "device_name": str, "log": str, "copies_error": float,
    "proof_rate_error": float, "proof_frozen_share": float, "proof_gradient_error": float,
    "settings": str, "output_error": float, "output_limit": float, "node": str,
    "quantization_error": float, "top1_agreement": float, "first_call_seconds": float,
    "model_bytes": float, "pixel_error": float, "second_proof_seconds": float,
    "process_seconds": float, "proof_limit_share": float, "device_memory_bytes": float,
    "test_accuracy": float, "test_samples": float, "reference_accuracy": float,
    "stage_idle_shares": str,
}
# What a proof could see: of campaigns whose processes prove the step that they time.
STRENGTH = ("proof_rate_error", "proof_frozen_share", "proof_gradient_error")
# What a process of an inference engine reports beside its times.
OF_ENGINES = ("quantization_error", "top1_agreement", "first_call_seconds", "model_bytes")
# What a process of an engine with trained weights reports of its answers.
OF_ANSWERS = ("test_accuracy", "test_samples", "reference_accuracy")
WINDOW_COLUMNS: Mapping[str, type] = {
    "trial": str, "process": int, "window": int, "steps": int, "last_step": int, "start": float,
    "stop": float, "seconds": float, "step_seconds": float, "loss": float,
}
# What a node's network interfaces and InfiniBand ports have carried since it started.
CARRIED = ("nic_tx_bytes", "nic_rx_bytes", "infiniband_tx_bytes", "infiniband_rx_bytes")
_COUNTED = (
    "seconds", "pcie_rx_bytes", "pcie_tx_bytes", "pcie_covered_seconds", "nvlink_rx_bytes",
    "nvlink_tx_bytes", "energy_joules", "energy_counter_joules", "power_watts", "sm_mhz",
    "memory_mhz", "event_reasons", "memory_used_bytes", "busy_percent", "processes", "cpu_seconds",
    "driver_seconds", "gpm_pcie_rx_bytes_per_second", "gpm_pcie_tx_bytes_per_second",
    "gpm_nvlink_rx_bytes_per_second", "gpm_nvlink_tx_bytes_per_second", "sm_percent",
    "tensor_percent", "dram_percent", *CARRIED,
)
COUNTER_COLUMNS: Mapping[str, type] = {
    "trial": str, "process": int, "device": str, "kind": str, **dict.fromkeys(_COUNTED, float),
    "broken": str, "own_seconds": float,
}
# Columns that campaigns of earlier releases do not have.
LATE = {"processes": ("proof_seconds", *STRENGTH, "settings", "output_error", "output_limit",
                      "node", *OF_ENGINES, "pixel_error", "second_proof_seconds",
                      "process_seconds", "proof_limit_share", "device_memory_bytes",
                      *OF_ANSWERS, "stage_idle_shares"),
        "counters": (*CARRIED, "own_seconds"),
        "server": ("completed_per_second", "late", "valid", "unmet")}
# Of a run that diverged or moved a tensor that must stand still.
MAY_BE_INFINITE = {"loss", "loss_error", "gradient_error", "trajectory_error", "copies_error",
                   "proof_rate_error", "proof_frozen_share", "proof_gradient_error",
                   "proof_limit_share", "output_error", "pixel_error"}
# Columns of floats, because they may be empty.
WHOLE_NUMBERS = ("window_steps", "parameters", "peak_memory_bytes", "steps", "window",
                 "model_bytes", "device_memory_bytes", "test_samples", "late", "valid")
# Without these a row says nothing.
MEASURED = ("start", "stop", "seconds", "step_seconds")
LARGEST_WHOLE = 2.0**53  # beyond it a float has no units
EDGE = "edge"  # kind of the readings on both sides of a window
KERNEL_COLUMNS: Mapping[str, type] = {
    "trial": str, "steps": float, "class": str, "arithmetic": str, "transposition": str,
    "kernel": str, "count_per_step": float, "seconds_per_step": float, "bytes_per_step": float,
    "reason": str, "exposed_seconds_per_step": float,
}
PHASE_COLUMNS: Mapping[str, type] = {
    "trial": str, "process": int, "variant": str, "window": float, "steps": float, "start": float,
    "stop": float, "seconds": float, "reason": str,
}
NETWORK_COLUMNS: Mapping[str, type] = {
    "trial": str, "process": int, "window": int, "steps": int, "network_tx_bytes": float,
}
# A few hundred calls a row: whole nanoseconds with blanks between, from call `first` of a window.
LATENCY_COLUMNS: Mapping[str, type] = {
    "trial": str, "process": int, "window": int, "first": int, "nanoseconds": str,
}
# A rate of requests that a process tried.
SERVER_COLUMNS: Mapping[str, type] = {
    "trial": str, "process": int, "rate": float, "requests": int, "seconds": float,
    "in_system": float, "mean_latency_seconds": float, "latency_seconds": float, "within": int,
    "completed_per_second": float, "late": float, "valid": float, "unmet": str,
}
# A run of a scenario by LoadGen. `valid` is its verdict, `unmet` what it missed, or why none ran.
SCENARIO_COLUMNS: Mapping[str, type] = {
    "trial": str, "process": int, "scenario": str, "batch": int, "calls": int, "seconds": float,
    "samples_per_second": float, "latency_mean_seconds": float, "latency_p50_seconds": float,
    "latency_p90_seconds": float, "latency_p99_seconds": float, "valid": int, "unmet": str,
}
# An epoch of a process that trains to a target: `step` and `seconds` since its start.
ACCURACY_COLUMNS: Mapping[str, type] = {
    "trial": str, "process": int, "seed": int, "epoch": int, "step": int, "seconds": float,
    "test_accuracy": float, "test_loss": float, "witness_error": float, "witness_share": float,
    "learning_rate": float, "evaluation_error": float,
}
# A test sample of trained weights, by its place in the set's test part: the class that the engine
# answers, and that of the float64 reference, which does not quantise.
ANSWER_COLUMNS: Mapping[str, type] = {
    "trial": str, "process": int, "sample": int, "label": int, "answer": int, "reference": int,
}
# Of reference_ratios.csv, which scripts/reference_ratio.py writes.
RATIO_COLUMNS: Mapping[str, type] = {
    "network": str, "batch": int, "framework": str, "release": str, "tier": str, "precision": str,
    "device_kind": str, "loop_seconds": float, "seconds": float, "ratio": float, "ratio_low": float,
    "ratio_high": float, "processes": int, "verified": str, "verdict": str, "reason": str}
TABLES = {"processes": PROCESS_COLUMNS, "windows": WINDOW_COLUMNS, "counters": COUNTER_COLUMNS,
          "kernels": KERNEL_COLUMNS, "operators": KERNEL_COLUMNS, "phases": PHASE_COLUMNS,
          "network": NETWORK_COLUMNS, "latencies": LATENCY_COLUMNS,
          "server": SERVER_COLUMNS, "scenarios": SCENARIO_COLUMNS, "accuracy": ACCURACY_COLUMNS,
          "loading": PHASE_COLUMNS, "answers": ANSWER_COLUMNS}
