"""The client of the saggar server: predictions with NumPy arrays, datasets, jobs and models.

```python
import numpy as np
import saggar

client = saggar.Client()
print(client.predict("digits", np.zeros((8, 8), np.uint8))["label"])
```

`Client` blocks and `AsyncClient` does not; both have the same methods.
"""

from ._clients import AsyncClient, AsyncJob, Client, Job
from ._curves import Curves
from ._documents import (
    Checkpoint, Dataset, DatasetField, Model, ModelVersion, NewVersion, OutputFile, Plugin, Port, Signature,
)
from ._predict import Piece, Prediction
from ._protocol import __version__
from .errors import (
    BadAnswer, BadInput, BadRequest, CertificateError, Conflict, DeadlineExceeded, Forbidden, JobFailed, NotFound,
    PluginFailed, PluginRejected, QueueFull, SaggarError, ServerError, StorageFull, TooLarge, TooManyRequests,
    Unauthorized, Unavailable, UnknownModel, Unreachable, VersionSkew,
)

__all__ = [
    "AsyncClient", "AsyncJob", "BadAnswer", "BadInput", "BadRequest", "CertificateError", "Checkpoint", "Client",
    "Conflict", "Curves", "Dataset", "DatasetField", "DeadlineExceeded", "Forbidden", "Job", "JobFailed",
    "Model", "ModelVersion", "NewVersion", "NotFound", "OutputFile", "Piece", "Plugin", "PluginFailed",
    "PluginRejected", "Port", "Prediction", "QueueFull", "SaggarError", "ServerError", "Signature", "StorageFull",
    "TooLarge", "TooManyRequests", "Unauthorized", "Unavailable", "UnknownModel", "Unreachable", "VersionSkew",
    "__version__",
]
