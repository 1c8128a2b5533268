"""Classifies small pictures, grey or RGB: two convolutions and two linear layers.

It trains on any dataset with the fields `image` (`uint8`, `[height, width]` or `[height, width, 3]`) and `label`, and
publishes the result.
"""

from saggar_plugin import Classes, Dataset, Feed, Fit, Graph, Inputs, Job, Model, Objective, Operand, Params, Port
from saggar_plugin import Variables, export
from saggar_plugin.layers import Conv2d, Linear
from saggar_plugin.optimizers import Adam


class Classifier(Model):
    """The network, and its inputs and outputs."""

    def __init__(self, v: Variables, config: Params) -> None:
        self.input = Port.from_config(config["input"])
        self.classes = Classes(config["classes"])
        height, width, *rest = self.input.shape
        self.channels = rest[0] if rest else 1
        self.conv1 = Conv2d(v.scope("conv1"), self.channels, 16, kernel_size=3, padding=1)
        self.conv2 = Conv2d(v.scope("conv2"), 16, 32, kernel_size=3, padding=1)
        features = 32 * (height // 4) * (width // 4)
        self.hidden = Linear(v.scope("hidden"), features, config["units"])
        self.output = Linear(v.scope("output"), config["units"], len(self.classes))

    def logits(self, inputs: Inputs) -> Operand:
        """Returns the logits: `[batch, height, width]` -> `[batch, classes]`."""
        image = inputs["image"]
        batch, height, width, *_ = image.shape
        pixels = image.to(image.graph.float_type) / 255
        x = pixels.reshape(batch, height, width, self.channels).permute(0, 3, 1, 2)
        x = self.conv1(x).relu().max_pool2d(2)
        x = self.conv2(x).relu().max_pool2d(2)
        return self.output(self.hidden(x.flatten()).relu())

    def inputs(self) -> list[Port]:
        return [self.input]

    def outputs(self) -> list[Port]:
        return self.classes.ports()

    def predict(self, graph: Graph, inputs: Inputs) -> dict[str, Operand]:
        return self.classes.outputs(self.logits(inputs))


def train(job: Job) -> None:
    """Trains with cross-entropy and Adam. `Fit` takes checkpoints, resumes from them, validates and reports."""
    data = Dataset.open("/data")
    config = {
        "input": Port.of(data.field("image")).config(),
        "classes": Classes.of(data.field("label"), job.param("classes", 10)),
        "units": job.param("units", 64),
    }
    epochs, model = job.param("epochs", 30), job.param("model", "NAME")
    feed = Feed(data, ["image", "label"], job.param("batch", 16))
    variables = job.variables()
    network = Classifier(variables, Params(config))

    def objective(graph: Graph, batch: Inputs) -> Objective:
        return Objective.classification(network.logits(batch), batch["label"])

    Fit(job, variables, Adam(job.param("lr", 0.002)), objective).epochs(feed, epochs)
    version = job.publish(model, variables, config)
    print(f"published version {version} of {model}")


export(Classifier, train)
