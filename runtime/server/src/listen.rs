//! The accept loop: connections over TCP or TLS, each on a task of its own, limited in number and in time.

mod patience;

use self::patience::Patience;
use crate::options::Limits;
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io::{Error, ErrorKind};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

/// How long no connection is accepted after the system had no room for one.
const PAUSE: Duration = Duration::from_secs(1);

/// What all connections share.
#[derive(Clone)]
pub struct Connections {
    /// The routes.
    pub router: Router,
    /// `None`: without TLS.
    pub tls: Option<TlsAcceptor>,
    /// Times and numbers.
    pub limits: Limits,
    /// Becomes `true` when the server drains.
    pub draining: watch::Receiver<bool>,
}

impl Connections {
    /// Accepts connections until the server drains; returns when the last one has ended. To drop the future ends all.
    pub async fn serve(mut self, listener: TcpListener) {
        let places = Arc::new(Semaphore::new(self.limits.max_connections.min(Semaphore::MAX_PERMITS)));
        let mut open = JoinSet::new();
        loop {
            let (stream, place) = tokio::select! {
                accepted = accept(&listener, &places) => accepted,
                Some(_) = open.join_next() => continue,
                () = drain(&mut self.draining) => break,
            };
            let connection = self.clone();
            open.spawn(async move {
                connection.answer(stream).await;
                drop(place);
            });
        }
        drop(listener);
        while open.join_next().await.is_some() {}
    }

    /// One connection, from its first byte to its last. How it ends is of no interest but for debugging.
    async fn answer(mut self, stream: TcpStream) {
        // Tokens are sent as they come.
        let _ = stream.set_nodelay(true);
        let Some(tls) = self.tls.take() else { return self.talk(stream).await };
        let mut draining = self.draining.clone();
        let shaken = tokio::select! {
            shaken = timeout(self.limits.head_timeout, tls.accept(stream)) => shaken,
            () = drain(&mut draining) => return,
        };
        match shaken {
            Ok(Ok(stream)) => self.talk(stream).await,
            Ok(Err(e)) => tracing::debug!("a TLS handshake failed: {e}"),
            Err(_) => tracing::debug!("a TLS handshake took longer than {:?}", self.limits.head_timeout),
        }
    }

    async fn talk<S: AsyncRead + AsyncWrite + Unpin>(mut self, stream: S) {
        let service = TowerToHyperService::new(self.router);
        let mut server = http1::Builder::new();
        // Also the time that a connection may be idle between two requests.
        server.timer(TokioTimer::new()).header_read_timeout(self.limits.head_timeout);
        let stream = Patience::new(stream, self.limits.write_timeout);
        let mut connection = pin!(server.serve_connection(TokioIo::new(stream), service));
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = drain(&mut self.draining) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(e) = ended {
            tracing::debug!("a connection failed: {e}");
        }
    }
}

/// Waits until the server drains.
async fn drain(draining: &mut watch::Receiver<bool>) {
    let _ = draining.wait_for(|is| *is).await;
}

/// The next connection, once there is a place for it; until then it waits in the system's queue.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> (TcpStream, Option<OwnedSemaphorePermit>) {
    // The semaphore is never closed.
    let place = places.clone().acquire_owned().await.ok();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return (stream, place),
            Err(e) if is_of_client(&e) => {}
            Err(e) => {
                // Too many open files, or no memory: others end and make room.
                let remedy = "lower --max-connections, or raise the limit of open files";
                tracing::warn!("a connection cannot be accepted: {e}; {remedy}");
                sleep(PAUSE).await;
            }
        }
    }
}

/// The client went away before it was accepted.
fn is_of_client(e: &Error) -> bool {
    matches!(
        e.kind(),
        ErrorKind::ConnectionAborted | ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset
    )
}

#[cfg(test)]
mod tests;
