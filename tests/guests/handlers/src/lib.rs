//! A model that adds an offset to a number, with HTTP handlers: some that behave, and some that do not.

use saggar_plugin::{
    DataType, Error, Graph, Graphs, HttpMethod, HttpRequest, HttpResponse, HttpRoutes, Inputs, Job, Json, Model,
    NamedTensor, Operand, Params, Port, Predictor, Result, Route, Tensor, Variables, descriptor, named,
};

/// The model. Its weight is the offset.
#[derive(Debug)]
pub struct OffsetModel {
    offset: saggar_plugin::Variable,
    name: String,
}

impl Model for OffsetModel {
    const BATCH_SIZES: &'static [u32] = &[1, 4];

    fn load(v: &Variables, config: &Params) -> Result<Self> {
        let offset = v.parameter("offset", &[1], &saggar_plugin::Initializer::Zeros)?;
        Ok(Self { offset, name: config.require("name")? })
    }

    fn inputs(&self) -> Vec<Port> {
        vec![Port::new("x", DataType::Float32, [])]
    }

    fn outputs(&self) -> Vec<Port> {
        vec![Port::new("y", DataType::Float32, [])]
    }

    fn routes(&self) -> Vec<Route> {
        vec![Route::new("/of/{x}")]
    }

    fn predict(&self, graph: &Graph, inputs: &Inputs) -> Result<Vec<(&'static str, Operand)>> {
        Ok(vec![("y", inputs.get("x")?.add(&graph.variable(&self.offset)?)?)])
    }
}

type OffsetGraphs = Graphs<OffsetModel>;

fn routes() -> HttpRoutes<OffsetGraphs> {
    HttpRoutes::new()
        .get("/hello/{name}", hello)
        .describe("Greets `name`, `times` times")
        .get("/hello/nobody", |_, _| Ok("Nobody is here."))
        .post("/add", add)
        .get("/headers", |_, request| Ok(seen_headers(request)))
        .get("/page", |_, _| Ok(HttpResponse::html("<h1>page</h1>").header("cache-control", "max-age=60")))
        .get("/count/{last}", count)
        .get("/status/{status}", |_, request| Ok(HttpResponse::empty(number(request, "status")?)))
        .get("/header", set_header)
        .get("/huge/{bytes}", |_, request| Ok(vec![b'a'; number(request, "bytes")?]))
        .get("/endless", |_, _| endless())
        .get("/loop", |_, _| spin::<String>())
        .get("/panic", |_, _| crash::<String>())
        .get("/late-panic", late_panic)
        .get("/twice", twice)
        .get("/greedy", |_, _| greedy())
        .get("/refused", |_, request| request.parameter("nothing").map(str::to_owned))
        .get("/grants", |_, _| grants())
        .with(HttpMethod::Put, "/items/{key}", item)
        .with(HttpMethod::Patch, "/items/{key}", item)
        .with(HttpMethod::Delete, "/items/{key}", |_, _| Ok(HttpResponse::empty(204)))
}

fn number<T: std::str::FromStr>(request: &HttpRequest, name: &str) -> Result<T> {
    let text = request.parameter(name)?;
    let wrong = || Error::Parameter { name: name.to_owned(), expected: "a number".to_owned(), given: text.to_owned() };
    text.parse().map_err(|_| wrong())
}

fn hello(model: &OffsetGraphs, request: &HttpRequest) -> Result<String> {
    let times = request.query("times").and_then(|text| text.parse().ok()).unwrap_or(1_usize).min(10);
    let (name, from) = (request.parameter("name")?, &model.model().name);
    Ok(format!("Hello, {name}, from {from}! ").repeat(times).trim_end().to_owned())
}

/// Computes with the model's graph: `{"x": 1}` is answered with `{"y": 1 + offset}`.
fn add(model: &OffsetGraphs, request: &HttpRequest) -> Result<Json> {
    let x: f32 = request.field("x")?;
    let tensor = Tensor::from_bytes(&descriptor(DataType::Float32, [1]), &x.to_le_bytes())?;
    let outputs = model.predict(vec![NamedTensor { name: "x".to_owned(), tensor }])?;
    let y = named(&outputs, "y")?.read_f32()?[0];
    Ok(Json::Object(vec![("y".to_owned(), Json::from(f64::from(y)))]))
}

fn seen_headers(request: &HttpRequest) -> String {
    let names = ["accept", "authorization", "cookie", "content-type", "host", "user-agent", "x-forwarded-for"];
    names.iter().filter_map(|name| Some(format!("{name}={}\n", request.header(name)?))).collect()
}

fn item(_: &OffsetGraphs, request: &HttpRequest) -> Result<HttpResponse> {
    let text = format!("{:?} {} {}", request.method(), request.parameter("key")?, request.text()?);
    Ok(HttpResponse::text(text).status(201).header("location", request.path()))
}

fn count(_: &OffsetGraphs, request: &HttpRequest) -> Result<HttpResponse> {
    let stream = HttpResponse::text("0\n").header("x-kind", "count").start()?;
    for number in 1..=number::<u32>(request, "last")? {
        stream.send(format!("{number}\n").as_bytes())?;
    }
    Ok(stream.finish())
}

fn set_header(_: &OffsetGraphs, request: &HttpRequest) -> Result<HttpResponse> {
    let given = |name| request.query(name).unwrap_or_default();
    let response = HttpResponse::text("set").header(given("name"), given("value"));
    if request.query("stream").is_some() { Ok(response.start()?.finish()) } else { Ok(response) }
}

fn endless() -> Result<HttpResponse> {
    let stream = HttpResponse::text("first\n").start()?;
    loop {
        stream.send(b"more\n")?;
    }
}

fn spin<T>() -> Result<T> {
    loop {
        std::hint::black_box(0);
    }
}

fn crash<T>() -> Result<T> {
    panic!("this handler always panics")
}

fn late_panic(_: &OffsetGraphs, _: &HttpRequest) -> Result<HttpResponse> {
    let stream = HttpResponse::text("the beginning\n").start()?;
    stream.send(b"and more\n")?;
    crash()
}

/// Returns a whole response after it has started a stream.
fn twice(_: &OffsetGraphs, _: &HttpRequest) -> Result<&'static str> {
    let stream = HttpResponse::text("first").start()?;
    stream.send(b"piece")?;
    Ok("second")
}

/// Takes memory until the host refuses more.
fn greedy() -> Result<String> {
    let mut blocks = Vec::new();
    loop {
        blocks.push(std::hint::black_box(vec![1_u8; 16 << 20]));
    }
}

/// Sends a piece of an output of a prediction, which no client waits for.
fn grants() -> Result<&'static str> {
    saggar_plugin::emit("y", 0, &[0; 4])?;
    Ok("sent")
}

/// Publishes the model `handlers`. Parameters: `offset`, `name`.
///
/// # Errors
/// Returns the host's error if the host refuses a call.
pub fn train(job: &Job) -> Result<()> {
    let offset: f32 = job.param("offset", 0.0)?;
    let config = Params::new().with("name", job.param("name", "version one".to_owned())?);
    job.params().check()?;
    let variables = job.variables();
    variables.parameter("offset", &[1], &saggar_plugin::Initializer::Constant(offset))?;
    job.publish("handlers", &variables, &config).map(drop)
}

saggar_plugin::export!(OffsetModel, train);
saggar_plugin::export!(http: routes);
