"""Latency and bandwidth of each link, fitted to times of transfers: T = max(f, a + S / B).

Reads links.csv of a study (docs/reference/records.md). Where a device works while its host issues
the next transfer, no transfer takes less than the host needs to issue one, f: a line alone would be
too steep by a third (NVLink, H200). The fit is least squares in *relative* error, so that 16 KiB
count as much as 256 MiB. Neither a nor 1 / B is below zero, and f counts only where it halves the
variance of the residuals. Intervals come from the residuals and from how processes differ; that of
a time is a prediction interval. Where a library changes its algorithm with the size no line fits,
so the points are kept too, with straight pieces between them.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.records.study_reader import LINK_COLUMNS, OWN_SUMS, WIRED, own_sum
from analysis.records.tables import read_table
from analysis.statistics import bootstrap

Values = NDArray[np.float64]

GROUP = ["wire", "devices", "link"]
# Fields of a fit that links.csv holds.
SWEPT = ("points", "processes")
# A line through two points has no residuals.
LEAST_SIZES = 3


@dataclass(frozen=True)
class Fit:
    """T = max(floor_seconds, latency_seconds + bytes / bytes_per_second), with 95 % intervals.

    `residual` is the root mean square of measured / fitted - 1, `worst` the largest, at
    `worst_bytes`. `covariance` is of (latency, seconds a byte), `floor_variance` of the floor.
    `quantile` is Student's for the degrees of freedom of `residual_variance`, the variance of
    1 - fitted / measured. `points` are (bytes, seconds) by size, `processes` the seconds of each
    process by size.
    """

    wire: str
    devices: int
    link: str
    latency_seconds: float
    latency_seconds_low: float
    latency_seconds_high: float
    bytes_per_second: float
    bytes_per_second_low: float
    bytes_per_second_high: float
    floor_seconds: float
    residual: float
    worst: float
    worst_bytes: float
    largest_bytes: float
    covariance: tuple[float, float, float]
    floor_variance: float
    quantile: float
    residual_variance: float = 0.0
    points: tuple[tuple[float, float], ...] = ()
    processes: tuple[tuple[float, ...], ...] = ()

    def seconds(self, messages: float, size_bytes: float) -> float:
        """Return the time of consecutive `messages` that carry `size_bytes` together."""
        return max(messages * self.floor_seconds, self._line(messages, size_bytes))

    def swept_seconds(self, messages: float, size_bytes: float) -> float:
        """Return the time by the points; beyond them at the largest's rate; nan without points."""
        if not self.points:
            return math.nan
        return self._swept(messages, size_bytes, [seconds for _, seconds in self.points])

    def seconds_by_process(self, messages: float, size_bytes: float) -> list[float]:
        """Return `swept_seconds` by the points of each process that has all sizes."""
        return [self._swept(messages, size_bytes, own) for own in self.processes]

    def half_width(self, messages: float, size_bytes: float) -> float:
        """Return half of the 95 % prediction interval of `seconds`.

        It holds the residuals, the uncertainty of the fit, and how processes differ at that size.
        """
        if messages * self.floor_seconds > self._line(messages, size_bytes):
            variance = messages**2 * self.floor_variance
        else:
            latency, both, slope = self.covariance
            variance = (messages**2 * latency + 2 * messages * size_bytes * both
                        + size_bytes**2 * slope)
        variance += self.residual_variance * self.seconds(messages, size_bytes) ** 2
        of_fit = self.quantile * math.sqrt(max(0.0, variance))
        return math.hypot(of_fit, self._spread(messages, size_bytes))

    def _spread(self, messages: float, size_bytes: float) -> float:
        """Return half of the 95 % interval of the processes' mean; 0 with fewer than two."""
        found = self.seconds_by_process(messages, size_bytes)
        if len(found) < 2:
            return 0.0
        return float(_quantile(len(found) - 1) * np.std(found, ddof=1) / math.sqrt(len(found)))

    def _swept(self, messages: float, size_bytes: float, seconds: Sequence[float]) -> float:
        sizes = [size for size, _ in self.points]
        each = size_bytes / messages
        return float(messages * np.interp(each, sizes, seconds) * max(1.0, each / sizes[-1]))

    def _line(self, messages: float, size_bytes: float) -> float:
        return messages * self.latency_seconds + size_bytes / self.bytes_per_second


def read(file: Path) -> pd.DataFrame:
    """Read links.csv. Raises BadRecords."""
    return read_table(file, LINK_COLUMNS)


def points(windows: pd.DataFrame) -> pd.DataFrame:
    """Reduce windows to `seconds` a transfer by link and size, the median over processes."""
    return by_process(windows).median(axis=1).rename("seconds").reset_index()


def by_process(windows: pd.DataFrame) -> pd.DataFrame:
    """Return each process's median seconds a transfer: a row a link and size."""
    measured = windows[windows["status"] == "ok"]
    measured = measured.assign(one=measured["seconds"] / measured["steps"])
    return measured.groupby([*GROUP, "bytes", "process"])["one"].median().unstack("process")


def fit_all(windows: pd.DataFrame) -> list[Fit]:
    """Fit every link of links.csv that has enough sizes."""
    found = []
    for _, group in by_process(windows).groupby(level=GROUP, sort=False):
        if len(group) >= LEAST_SIZES:
            wire, devices, link, _ = group.index[0]
            sizes = group.index.get_level_values("bytes").to_numpy(float)
            seconds = group.median(axis=1).to_numpy()
            found.append(fit((wire, devices, link), sizes, seconds, group.to_numpy().T))
    return found


def fit(name: tuple[str, int, str], sizes: Values, seconds: Values,
        processes: Values | None = None) -> Fit:
    """Fit one link (wire, devices, link): sizes in bytes, seconds a transfer.

    `processes` has a row of seconds a process. A slow process moves a whole line and leaves no
    residual, so the variance between processes is added to that of the residuals.
    """
    level = _level(sizes, seconds)
    degrees = len(sizes) - (3 if level else 2)
    floor, (latency, slope) = _floor(seconds[:level]), _line(sizes[level:], seconds[level:])
    # 1 where the fit goes through the point.
    fitted = np.maximum(floor, latency + slope * sizes) / seconds
    variance = np.sum((1 - fitted) ** 2) / degrees
    design = _design(sizes[level:], seconds[level:])
    covariance = np.linalg.inv(design.T @ design) * variance
    floor_variance = variance / max(np.sum(seconds[:level] ** -2.0), 1.0)
    quantile = _quantile(degrees)
    whole = [] if processes is None else [row for row in processes if np.isfinite(row).all()]
    if len(whole) > 1:
        # Processes have fewer degrees of freedom than the residuals.
        wider = (_quantile(len(whole) - 1) / quantile) ** 2 / len(whole)
        lines = np.array([_line(sizes[level:], row[level:]) for row in whole])
        covariance += wider * np.cov(lines.T)
        floor_variance += wider * np.var([_floor(row[:level]) for row in whole], ddof=1)
    off_latency, off_slope = quantile * np.sqrt(np.diag(covariance))
    relative = 1 / fitted - 1
    worst = int(np.argmax(np.abs(relative)))
    return Fit(
        *name, latency, max(0.0, float(latency - off_latency)), float(latency + off_latency),
        _rate(slope), _rate(slope + off_slope), _rate(slope - off_slope), floor,
        float(np.sqrt(np.mean(relative**2))), float(relative[worst]), float(sizes[worst]),
        float(sizes.max()),
        (float(covariance[0, 0]), float(covariance[0, 1]), float(covariance[1, 1])),
        float(floor_variance), quantile, float(variance),
        tuple(zip(sizes.tolist(), seconds.tolist(), strict=True)),
        tuple(tuple(row.tolist()) for row in whole),
    )


def _level(sizes: Values, seconds: Values) -> int:
    """Count the smallest sizes that lie on a floor; 0 unless it halves the residuals' variance."""
    variances = []
    for level in range(len(sizes) - LEAST_SIZES + 1):
        latency, slope = _line(sizes[level:], seconds[level:])
        fitted = np.maximum(_floor(seconds[:level]), latency + slope * sizes) / seconds
        degrees = max(1, len(sizes) - (3 if level else 2))
        variances.append(np.sum((1 - fitted) ** 2) / degrees)
    best = int(np.argmin(variances))
    return best if variances[best] < variances[0] / 2 and len(sizes) > LEAST_SIZES else 0


def _floor(seconds: Values) -> float:
    """Return the constant with the least squares of relative errors; 0 without a point."""
    return float(np.sum(1 / seconds) / np.sum(seconds**-2.0)) if len(seconds) else 0.0


def _line(sizes: Values, seconds: Values) -> tuple[float, float]:
    """Fit latency and seconds a byte, neither below zero, by squares of relative errors."""
    # Loaded here, because every start of the command would wait for it.
    from scipy import optimize

    design = _design(sizes, seconds)
    # Bytes are a billion times seconds: without scaling the solver sees no latency.
    scale = np.linalg.norm(design, axis=0)
    solution, _ = optimize.nnls(design / scale, np.ones(len(sizes)))
    latency, slope = solution / scale
    return float(latency), float(slope)


def _design(sizes: Values, seconds: Values) -> Values:
    """Return the rows of the least-squares problem, whose targets are 1."""
    design: Values = np.column_stack([np.ones(len(sizes)), sizes]) / seconds[:, None]
    return design


def _quantile(degrees: int) -> float:
    from scipy import special

    return float(special.stdtrit(degrees, (1 + bootstrap.CONFIDENCE) / 2))


def _rate(seconds_per_byte: float) -> float:
    return 1 / float(seconds_per_byte) if seconds_per_byte > 0 else math.inf


def table(fits: Sequence[Fit]) -> pd.DataFrame:
    """Return the fits as rows of fits.csv."""
    columns = [name for name in Fit.__dataclass_fields__ if name not in SWEPT]
    rows = pd.DataFrame([asdict(each) for each in fits], columns=columns)
    return rows.assign(covariance=[" ".join(f"{value:.6g}" for value in each.covariance)
                                   for each in fits])


def refused(windows: pd.DataFrame) -> pd.DataFrame:
    """List what was not measured, with its reason."""
    found = windows.loc[windows["status"] != "ok", [*GROUP, "status", "reason"]]
    return found.drop_duplicates().reset_index(drop=True)


def chosen(fits: Sequence[Fit], wire: str, devices: int) -> dict[str, Fit]:
    """Return the fits by link: those of `devices` devices, else of the nearest number of them.

    Copies and sums within a machine have no wire; they were measured with the default one only.
    """
    by_link: dict[str, list[Fit]] = {}
    for each in fits:
        wired = each.link in WIRED or each.link in map(own_sum, OWN_SUMS)
        if each.wire == (wire if wired else "default"):
            by_link.setdefault(each.link, []).append(each)
    return {link: min(group, key=lambda each: abs(math.log(each.devices / devices)))
            for link, group in by_link.items()}
