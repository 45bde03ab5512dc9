"""Chains of dependent GPU kernels whose tiles wait for each other, proved before they run.

A page of RON describes a chain. ``check`` proves that its schedule can neither race nor hang, ``Pipeline`` runs it on
arrays, and ``Model`` runs language models that consist of such chains. ``schedule`` runs whole kernels concurrently.
Nothing but numpy is needed; without a GPU the same plans run on the host.
"""

from ._cusync import __version__
from ._errors import CusyncError, SpecError
from ._model import Model, Stream, tiny_model
from ._pipeline import Pipeline, Verdict
from ._report import Report, check, doctor, explain, schedule, shipped

__all__ = [
    "CusyncError",
    "Model",
    "Pipeline",
    "Report",
    "SpecError",
    "Stream",
    "Verdict",
    "__version__",
    "check",
    "doctor",
    "explain",
    "schedule",
    "shipped",
    "tiny_model",
]
