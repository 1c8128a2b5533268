"""The reference plugin `mlp`, in Python. Options of the training that `mlp` lacks are parameters."""

import math

from saggar_plugin import Classes, Dataset, Feed, Fit, Graph, Histogram, ImagePreprocessing, Inputs, Job, Model
from saggar_plugin import Objective, Operand, Params, Port, Tensor, Variables, export, float32, uint8
from saggar_plugin.layers import Dropout, Linear
from saggar_plugin.optimizers import SGD, Adam, Cosine, Muon, Optimizer


class Mlp(Model):
    def __init__(self, v: Variables, config: Params) -> None:
        self.image, self.classes, unit = config["image"], Classes(config["classes"]), config["unit"]
        pixels = math.prod(self.image)
        self.layers = [
            Linear(v.scope("l1"), pixels, unit),
            Linear(v.scope("l2"), unit, unit),
            Linear(v.scope("l3"), unit, len(self.classes)),
        ]
        self.dropout = Dropout(v, config.param("dropout", 0.0))
        self.declared, self.standardizes = config.param("declared", False), config.param("standardizes", False)

    def logits(self, image: Operand) -> Operand:
        first, second, last = self.layers
        x = image.flatten().to(image.graph.float_type)
        if not self.declared:
            x = x / 255
        if self.standardizes:
            x = x.per_image_standardization()
        return last(self.dropout(second(first(x).relu()).relu()))

    def inputs(self) -> list[Port]:
        if self.declared:
            return [Port("image", float32, self.image)]
        return [Port("image", uint8, self.image, semantics="image")]

    def outputs(self) -> list[Port]:
        return self.classes.ports()

    def predict(self, graph: Graph, inputs: Inputs) -> dict[str, Operand]:
        return self.classes.outputs(self.logits(inputs["image"]))


def log_items(job: Job, step: int) -> None:
    """Logs an item of each kind."""
    job.log_image(step, "pictures/grey", Tensor.of([0.0, 0.5, 1.0, 2.0], [1, 2, 2]), layout="chw")
    job.log_image(step, "pictures/red", Tensor.of([255, 0, 0], [1, 1, 3], uint8))
    columns = {"name": ["a", "b"], "share": [0.5, math.nan], "count": [1, 2], "known": [True, False]}
    job.log_table(step, "table", columns)
    job.log_histogram(step, "numbers", Histogram.of([0.0, 1.0, 2.0, math.inf], bins=2))


def train(job: Job) -> None:
    data = Dataset.open("/data")
    unit, batch, epochs = job.param("unit", 1000), job.param("batch", 100), job.param("epochs", 20)
    declared = job.param("declared", False)
    if declared:
        preprocessing = ImagePreprocessing(8, 8, colors="grey", mean=[0], scale=[1 / 256], layout="nhwc")
        job.declare_image_input("image", preprocessing)
    feed = Feed(data, ["image", "label"], batch)
    lr = job.param("lr", 0.001)
    name = job.param("model", "mlp-python")
    config = {
        "image": data.field("image").item.shape,
        "unit": unit,
        "classes": Classes.of(data.field("label"), job.param("classes", 10)),
    }
    everything = job.param("everything", False)
    if everything:
        config["dropout"] = 0.1
        config["standardizes"] = True
    if declared:
        config["declared"] = True
    steps = feed.steps_per_epoch * epochs
    optimizers: dict[str, Optimizer] = {
        "adam": Adam(lr),
        "sgd": SGD(Cosine(0.1, steps, warmup=5), momentum=0.9, nesterov=True, weight_decay=1e-4),
        "muon": Muon(0.02, Adam(lr, weight_decay=0.01)),
    }
    optimizer = optimizers[job.param("optimizer", "adam")]
    variables = job.variables()
    mlp = Mlp(variables, Params(config))

    def objective(graph: Graph, batch: Inputs) -> Objective:
        return Objective.classification(mlp.logits(batch["image"]), batch["label"])

    logs = job.param("log", False)
    fit = Fit(job, variables, optimizer, objective, log_histograms=logs)
    if everything:
        fit.clip_grad_norm = 1.0
        fit.gradient_accumulation_steps = 2
        fit.mixed_precision = True
        fit.exponential_moving_average = 0.99
        fit.early_stopping = 100
    fit.epochs(feed, epochs)
    if logs:
        log_items(job, steps)
    job.publish(name, variables, config)


export(Mlp, train)
