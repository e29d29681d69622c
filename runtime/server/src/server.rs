//! The server: routes, signals, and the end.

use crate::error::{ApiError, Error, Result, in_routes_form};
use crate::fields::Fields;
use crate::listen::Connections;
use crate::metrics::{self, Metrics};
use crate::model::ModelSource;
use crate::options::ServerOptions;
use crate::registry::{Entry, Lease, Registry};
use crate::stored::{self, ModelStore};
use crate::{anthropic, auth, body, embeddings, llama, ollama, openai, openapi, page, props, tls, trace};
use axum::Router;
use axum::http::{HeaderValue, Method, StatusCode, Uri};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tower_http::cors::{Any, CorsLayer};

/// What routes share.
pub struct App {
    pub options: ServerOptions,
    pub registry: Arc<Registry>,
    pub metrics: Arc<Metrics>,
    pub started: u64,
}

impl App {
    pub fn new(options: ServerOptions, sources: Vec<ModelSource>, store: Option<ModelStore>) -> App {
        App {
            registry: Arc::new(Registry::new(sources, store, &options)),
            metrics: Arc::default(),
            started: crate::names::since_1970().as_secs(),
            options,
        }
    }

    /// The model that a request names, loaded.
    pub async fn lease(&self, fields: &Fields) -> Result<Lease, ApiError> {
        self.lease_of(&self.entry(fields).await?, fields).await
    }

    /// The same of a model that was found.
    pub async fn lease_of(&self, entry: &Arc<Entry>, fields: &Fields) -> Result<Lease, ApiError> {
        self.registry.lease(entry).await?.with_receipt(fields)
    }

    /// The model that a request names, and the request with the model's own parameters where it has none.
    pub async fn resolve(&self, mut fields: Fields) -> Result<(Arc<Entry>, Fields), ApiError> {
        let entry = self.entry(&fields).await?;
        if let Some(model) = entry.stored() {
            stored::add_defaults(&mut fields, &model.params);
        }
        Ok((entry, fields))
    }

    async fn entry(&self, fields: &Fields) -> Result<Arc<Entry>, ApiError> {
        let name: Option<String> = fields.get("model")?;
        self.registry.find(name.as_deref()).await
    }

    /// The time as templates write it.
    pub fn now(&self) -> String {
        (self.options.utc)(crate::names::since_1970().as_secs())
    }

    /// The time as Ollama writes it.
    pub fn now_utc(&self) -> String {
        let now = crate::names::since_1970();
        format!("{}.{:06}Z", (self.options.utc)(now.as_secs()), now.subsec_micros())
    }

    /// A time in seconds since 1970 as Ollama writes it.
    pub fn utc(&self, seconds: u64) -> String {
        (self.options.utc)(seconds) + "Z"
    }
}

/// Models that answer on a socket.
pub struct Server {
    options: ServerOptions,
    sources: Vec<ModelSource>,
    store: Option<ModelStore>,
    loads_first: bool,
}

impl Server {
    /// A server of these models; the first is the default.
    pub fn new(options: ServerOptions, sources: Vec<ModelSource>) -> Server {
        Server { options, sources, store: None, loads_first: true }
    }

    /// Serves the models of a store too. Without `loads_first` no model is loaded at start.
    pub fn with_store(self, store: ModelStore, loads_first: bool) -> Server {
        Server { store: Some(store), loads_first, ..self }
    }

    /// Listens, loads the first model, and answers until SIGINT or SIGTERM; then running requests may end within the grace
    /// time. `on_ready` is called with the address once requests are accepted.
    pub fn serve(self, on_ready: impl FnOnce(SocketAddr)) -> Result<()> {
        let runtime = runtime()?;
        let ended = runtime.block_on(self.run(on_ready));
        // Threads that still load a model end with the process.
        runtime.shutdown_background();
        ended
    }

    /// The routes, with the first model loaded.
    pub(crate) async fn open(self) -> Result<(Arc<App>, Router)> {
        let cors = cors(&self.options.cors)?;
        let app = Arc::new(App::new(self.options, self.sources, self.store));
        if let Some(first) = app.registry.named().first().filter(|_| self.loads_first) {
            app.registry.lease(first).await.map_err(|e| Error::Load(e.message))?;
        }
        tokio::spawn(app.registry.clone().unload_expired());
        Ok((app.clone(), routes(app, cors)))
    }

    async fn run(self, on_ready: impl FnOnce(SocketAddr)) -> Result<()> {
        let address = self.options.address;
        let listen = |e: std::io::Error| Error::Listen { address, problem: e.to_string() };
        let listener = TcpListener::bind(address).await.map_err(listen)?;
        let tls = self.options.tls.as_ref().map(tls::acceptor).transpose()?;
        let mut signals = Signals::listen()?;
        let (app, router) = self.open().await?;
        on_ready(listener.local_addr().map_err(listen)?);

        let (drain, draining) = tokio::sync::watch::channel(false);
        let limits = app.options.limits;
        let mut served = pin!(Connections { router, tls, limits, draining }.serve(listener));
        tokio::select! {
            () = &mut served => {}
            () = signals.next() => {}
        }
        let _ = drain.send(true);
        tokio::select! {
            () = &mut served => {}
            // The time is over, or a second signal came.
            () = tokio::time::sleep(app.options.grace) => {}
            () = signals.next() => {}
        }
        Ok(())
    }
}

/// What requests run on.
pub(crate) fn runtime() -> Result<Runtime> {
    Builder::new_multi_thread().worker_threads(2).thread_name("http").enable_all().build().map_err(start)
}

fn start(e: std::io::Error) -> Error {
    Error::Start { problem: e.to_string() }
}

/// SIGINT and SIGTERM.
struct Signals(Signal, Signal);

impl Signals {
    fn listen() -> Result<Signals> {
        let listen = |kind| signal(kind).map_err(start);
        Ok(Signals(listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?))
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.0.recv() => {}
            _ = self.1.recv() => {}
        }
    }
}

pub fn routes(app: Arc<App>, cors: Option<CorsLayer>) -> Router {
    let openai = Router::new()
        .route("/v1/models", get(openai::models::list))
        .route("/v1/models/{*id}", get(openai::models::one))
        .route("/v1/completions", post(openai::completions::route))
        .route("/v1/chat/completions", post(openai::chat::route))
        .route("/v1/responses", post(openai::responses::route))
        .route("/v1/embeddings", post(embeddings::openai))
        .route("/v1/rerank", post(embeddings::rerank))
        .route("/health", get(llama::health))
        .route("/metrics", get(metrics::metrics))
        .route("/props", get(props::route))
        .route("/slots", get(llama::slots))
        .route("/tokenize", post(llama::tokenize))
        .route("/detokenize", post(llama::detokenize))
        .route("/apply-template", post(llama::apply_template))
        .fallback(no_route);
    let routes = openai.merge(anthropic::routes()).merge(ollama::routes());
    let routes = routes.merge(page::routes()).merge(openapi::routes());
    // The router's own errors take the form of their route as well: both come after all routes.
    let routes = routes.method_not_allowed_fallback(no_method);
    // Keys are checked before bodies are read.
    let routes = routes.layer(from_fn_with_state(app.clone(), body::limit));
    let routes = routes.layer(from_fn_with_state(app.clone(), auth::check)).layer(from_fn(in_routes_form));
    let routes = match cors {
        Some(cors) => routes.layer(cors),
        None => routes,
    };
    routes.layer(from_fn(trace::layer)).with_state(app)
}

async fn no_route(method: Method, uri: Uri) -> impl IntoResponse {
    let message = format!("there is no {method} {}: docs/guide/serve.md lists the routes", uri.path());
    ApiError { code: Some("not_found"), ..ApiError::new(StatusCode::NOT_FOUND, message) }
}

async fn no_method(method: Method, uri: Uri) -> impl IntoResponse {
    let message = format!("{} does not take {method}: expected GET for lists, POST for requests", uri.path());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, message)
}

fn cors(origins: &[String]) -> Result<Option<CorsLayer>> {
    let layer = CorsLayer::new().allow_methods(Any).allow_headers(Any).expose_headers([trace::HEADER]);
    match origins {
        [] => Ok(None),
        [all] if all == "*" => Ok(Some(layer.allow_origin(Any))),
        some => {
            let parse = |origin: &String| {
                HeaderValue::from_str(origin).map_err(|_| Error::Origin { origin: origin.clone() })
            };
            let origins: Vec<HeaderValue> = some.iter().map(parse).collect::<Result<_>>()?;
            Ok(Some(layer.allow_origin(origins)))
        }
    }
}
