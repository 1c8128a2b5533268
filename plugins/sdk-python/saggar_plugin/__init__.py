"""Write saggar plugins in Python.

A plugin describes tensor graphs; the host holds the data, executes the graphs and stores the state. Its code runs in a
sandbox without files, network, environment variables and threads, in which clocks stand still and random numbers depend
only on the job's seed. Modules of the standard library must be imported at the top of the plugin's modules, because
they become part of the component when it is built.
"""

from . import layers, log, losses, optimizers
from .classes import Classes
from .dataset import Batches, Column, Dataset, Field
from .errors import ErrorCode, HostError, Stopped
from .exports import export
from .fit import Feed, Fit, Objective
from .graph import Executable, Graph, Inputs
from .http import HttpAnswer, HttpRequest, HttpResponse, route
from .images import ImagePreprocessing
from .job import Job
from .logged import Histogram
from .losses import CrossEntropy, accuracy
from .operand import InterpolationMode, Operand, PaddingMode, ScatterReduction, concat
from .params import Params
from .predict import BATCH_SIZES, Model, Port, Predictor, Route, Signature, emit
from .tensor import (
    DataType,
    Descriptor,
    Tensor,
    float16,
    float32,
    int8,
    int32,
    int64,
    uint8,
    uint32,
    uint64,
    unpadded,
)
from .variables import Variable, Variables

__all__ = [
    "BATCH_SIZES",
    "Batches",
    "Classes",
    "Column",
    "CrossEntropy",
    "DataType",
    "Dataset",
    "Descriptor",
    "ErrorCode",
    "Executable",
    "Feed",
    "Field",
    "Fit",
    "Graph",
    "Histogram",
    "HostError",
    "HttpAnswer",
    "HttpRequest",
    "HttpResponse",
    "ImagePreprocessing",
    "Inputs",
    "InterpolationMode",
    "Job",
    "Model",
    "Objective",
    "Operand",
    "PaddingMode",
    "Params",
    "Port",
    "Predictor",
    "Route",
    "ScatterReduction",
    "Signature",
    "Stopped",
    "Tensor",
    "Variable",
    "Variables",
    "accuracy",
    "concat",
    "emit",
    "export",
    "float16",
    "float32",
    "int32",
    "int64",
    "int8",
    "layers",
    "log",
    "losses",
    "optimizers",
    "route",
    "uint32",
    "uint64",
    "uint8",
    "unpadded",
]
