//! The routes without a socket, for programs that have the server as a part: each request is handed over, and its answer is taken
//! in parts.

use crate::error::{Error, Result};
use crate::registry::Registry;
use crate::server::{Server, runtime};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use futures_util::StreamExt;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use llmrt::engine::AsyncEngine;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Parts of an answer that wait to be taken.
const BUFFER: usize = 16;

/// How long requests have to end when the routes are dropped.
const END: Duration = Duration::from_secs(2);

/// The routes in this process. To drop it ends its requests and frees its models.
pub struct Local {
    router: Router,
    registry: Arc<Registry>,
    /// There until the end.
    runtime: Option<Runtime>,
}

/// A part of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part {
    /// The first: status, and names and values of headers.
    Head(u16, Vec<(String, Vec<u8>)>),
    /// Bytes of the body.
    Body(Bytes),
    /// The answer is complete.
    End,
}

/// What has come of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum News {
    /// The next part.
    Part(Part),
    /// Nothing yet.
    Pending,
    /// No more: after [`Part::End`] was taken, or since the routes were dropped.
    Gone,
}

/// A request that is answered. To drop it ends the request.
pub struct Exchange(Receiver<Part>);

impl Exchange {
    /// The next part, if it has come.
    pub fn take(&mut self) -> News {
        match self.0.try_recv() {
            Ok(part) => News::Part(part),
            Err(TryRecvError::Empty) => News::Pending,
            Err(TryRecvError::Disconnected) => News::Gone,
        }
    }
}

/// Where an answer goes. However it ends, there is news of it.
struct Outlet<F: Fn()> {
    /// There until the end.
    parts: Option<Sender<Part>>,
    on_news: F,
}

impl<F: Fn()> Outlet<F> {
    /// Sends a part once there is room for it; `false`: it has no taker.
    async fn send(&self, part: Part) -> bool {
        let Some(parts) = &self.parts else { return false };
        let is_sent = parts.send(part).await.is_ok();
        (self.on_news)();
        is_sent
    }

    /// Waits until the exchange is dropped.
    async fn closed(&self) {
        if let Some(parts) = &self.parts {
            parts.closed().await;
        }
    }
}

impl<F: Fn()> Drop for Outlet<F> {
    fn drop(&mut self) {
        self.parts = None;
        (self.on_news)();
    }
}

impl Server {
    /// The routes without a socket; the first model is loaded as [`Server::serve`] loads it.
    pub fn local(self) -> Result<Local> {
        let runtime = runtime()?;
        let (app, router) = runtime.block_on(self.open())?;
        Ok(Local { router, registry: app.registry.clone(), runtime: Some(runtime) })
    }
}

impl Local {
    /// Hands a request over. `on_news` is called on a thread of the server after each part that comes, and at the end: it must not
    /// wait.
    pub fn send(
        &self,
        (method, path): (&str, &str),
        headers: &[(Vec<u8>, Vec<u8>)],
        body: Vec<u8>,
        on_news: impl Fn() + Send + Sync + 'static,
    ) -> Result<Exchange> {
        let mut request = axum::http::Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(name.as_slice(), value.as_slice());
        }
        let request = request.body(Body::from(body)).map_err(|e| Error::Request(e.to_string()))?;
        let (parts, taken) = channel(BUFFER);
        let outlet = Outlet { parts: Some(parts), on_news };
        let router = self.router.clone();
        let runtime = self.runtime.as_ref().ok_or_else(|| Error::Request("the server has ended".into()))?;
        runtime.spawn(async move {
            tokio::select! {
                // What is dropped here aborts its requests.
                () = outlet.closed() => {}
                () = answer(router, request, &outlet) => {}
            }
        });
        Ok(Exchange(taken))
    }

    /// The engine of the first model, if it is loaded.
    pub fn engine(&self) -> Option<AsyncEngine> {
        Some(self.registry.named().first()?.loaded()?.engine.clone())
    }
}

/// Sends the parts of an answer.
async fn answer<F: Fn()>(router: Router, request: Request, outlet: &Outlet<F>) {
    // The router's service cannot fail.
    let Ok(response) = TowerToHyperService::new(router).call(request).await;
    let headers = response.headers().iter();
    let headers = headers.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect();
    let mut next = Part::Head(response.status().as_u16(), headers);
    let mut body = response.into_body().into_data_stream();
    loop {
        let is_last = next == Part::End;
        if !outlet.send(next).await || is_last {
            return;
        }
        next = match body.next().await {
            Some(Ok(chunk)) => Part::Body(chunk),
            // A body that fails is not complete.
            Some(Err(_)) => return,
            None => Part::End,
        };
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(END);
        }
        let models = self.registry.entries().into_iter().filter_map(|entry| entry.loaded());
        models.for_each(|model| model.engine.drain());
    }
}
