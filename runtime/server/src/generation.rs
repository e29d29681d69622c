//! Requests in the engine: the events of all prompts of a call in one channel, with a deadline and metrics.

use crate::error::ApiError;
use crate::metrics::Metrics;
use crate::registry::Lease;
use crate::trace::{self, Trace};
use axum::http::StatusCode;
use llmrt::engine::core::Usage;
use llmrt::engine::output::SampledToken;
use llmrt::engine::{EngineEvent, Finish, Request, RequestGuard, RequestOutput};
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Requests of one call. To drop it aborts them.
pub struct Generation {
    pub lease: Lease,
    pub started: Instant,
    /// Time of the first token.
    pub first_token: Option<Instant>,
    events: UnboundedReceiver<(usize, EngineEvent)>,
    _guards: Vec<RequestGuard>,
    n_open: usize,
    /// Of the prompts that ended.
    usage: Usage,
    texts: BTreeMap<(usize, usize), Shown>,
    ready: VecDeque<Piece>,
    deadline: Option<tokio::time::Instant>,
    last_token: BTreeMap<(usize, usize), Instant>,
    metrics: Arc<Metrics>,
    trace: Option<Trace>,
}

/// What of a text was streamed.
#[derive(Default)]
struct Shown {
    n_bytes: usize,
    has_ended: bool,
}

/// The next part of a streamed text.
#[derive(Clone, PartialEq, Debug)]
pub struct Piece {
    /// Which of the call's prompts.
    pub prompt: usize,
    /// Which of its texts.
    pub index: usize,
    pub text: String,
    /// The token that completed the text; none where text had been held back, or texts were compared first.
    pub token: Option<SampledToken>,
    /// Why the text ended, with its last piece.
    pub finish: Option<Finish>,
}

/// All texts of a prompt.
#[derive(Clone, Debug)]
pub struct Answer {
    pub output: RequestOutput,
    /// Tokens by text, where they were streamed.
    pub tokens: BTreeMap<usize, Vec<SampledToken>>,
}

impl Generation {
    /// Queues the requests, one a prompt.
    pub fn start(
        lease: Lease,
        requests: Vec<Request>,
        timeout: Option<Duration>,
        metrics: &Arc<Metrics>,
    ) -> Result<Generation, ApiError> {
        let trace = trace::current();
        if let Some(trace) = &trace {
            trace.begins(lease.entry().name(), requests.iter().map(|request| request.prompt.len()).sum());
        }
        let (sender, events) = unbounded_channel();
        let n_open = requests.len();
        let mut guards = Vec::new();
        for (i, request) in requests.into_iter().enumerate() {
            let sender = sender.clone();
            let sink = Box::new(move |event| drop(sender.send((i, event))));
            guards.push(lease.model.engine.generate_with(request, sink)?);
        }
        Ok(Generation {
            lease,
            started: Instant::now(),
            first_token: None,
            events,
            _guards: guards,
            n_open,
            usage: Usage::default(),
            texts: BTreeMap::new(),
            ready: VecDeque::new(),
            deadline: timeout.map(|timeout| tokio::time::Instant::now() + timeout),
            last_token: BTreeMap::new(),
            metrics: metrics.clone(),
            trace,
        })
    }

    /// The next event and its prompt; `None` after the last.
    pub async fn next(&mut self) -> Result<Option<(usize, EngineEvent)>, ApiError> {
        if self.n_open == 0 {
            return Ok(None);
        }
        let received = match self.deadline {
            Some(deadline) => tokio::time::timeout_at(deadline, self.events.recv()).await,
            None => Ok(self.events.recv().await),
        };
        let event = received.map_err(|_| timed_out())?;
        let (prompt, event) = event.ok_or(llmrt::engine::Error::EngineGone)?;
        self.measure(prompt, &event);
        if let EngineEvent::Failed { error, .. } = event {
            let error = ApiError::from(error);
            self.trace.iter().for_each(|trace| trace.failed(&error));
            return Err(error);
        }
        self.n_open -= usize::from(event.is_last());
        Ok(Some((prompt, event)))
    }

    /// Waits for all texts, by prompt.
    pub async fn finish(&mut self) -> Result<Vec<Answer>, ApiError> {
        let mut tokens: BTreeMap<usize, BTreeMap<usize, Vec<SampledToken>>> = BTreeMap::new();
        let mut answers = BTreeMap::new();
        while let Some((prompt, event)) = self.next().await? {
            match event {
                EngineEvent::Token { index, token, .. } => {
                    tokens.entry(prompt).or_default().entry(index).or_default().push(token);
                }
                EngineEvent::Finished(output) => {
                    let tokens = tokens.remove(&prompt).unwrap_or_default();
                    answers.insert(prompt, Answer { output, tokens });
                }
                _ => {}
            }
        }
        Ok(answers.into_values().collect())
    }

    /// The next part of any text, as it is generated; `None` after the last.
    pub async fn piece(&mut self) -> Result<Option<Piece>, ApiError> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Ok(Some(piece));
            }
            let Some((prompt, event)) = self.next().await? else { return Ok(None) };
            match event {
                EngineEvent::Token { index, token, .. } => {
                    let text = token.text.clone();
                    self.push(Piece { prompt, index, text, token: Some(token), finish: None });
                }
                EngineEvent::TextEnded { index, text, finish, .. } => {
                    self.push(Piece { prompt, index, text, token: None, finish: Some(finish) });
                }
                EngineEvent::Finished(output) => self.push_rest(prompt, output),
                _ => {}
            }
        }
    }

    fn push(&mut self, piece: Piece) {
        let shown = self.texts.entry((piece.prompt, piece.index)).or_default();
        shown.n_bytes += piece.text.len();
        shown.has_ended |= piece.finish.is_some();
        self.ready.push_back(piece);
    }

    /// Texts that were not streamed, or that ended without an event of their own.
    fn push_rest(&mut self, prompt: usize, output: RequestOutput) {
        for (index, output) in output.outputs.into_iter().enumerate() {
            let shown = self.texts.entry((prompt, index)).or_default();
            if !shown.has_ended {
                let text = output.text.get(shown.n_bytes..).unwrap_or_default().to_string();
                self.push(Piece { prompt, index, text, token: None, finish: Some(output.finish) });
            }
        }
    }

    /// Tokens of all prompts that ended.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// An object with the receipt, if it was requested.
    pub fn with_receipt(&self, mut object: Value) -> Value {
        if let Some(receipt) = &self.lease.receipt {
            object["receipt"] = receipt.json(&self.lease.model.engine.work(), self.usage);
        }
        object
    }

    fn measure(&mut self, prompt: usize, event: &EngineEvent) {
        let now = Instant::now();
        match event {
            EngineEvent::Token { index, .. } => {
                match self.last_token.insert((prompt, *index), now) {
                    Some(last) => self.metrics.inter_token.record(now - last),
                    None => self.metrics.first_token.record(now - self.started),
                }
                self.first_token.get_or_insert(now);
                self.trace.iter().for_each(Trace::token);
            }
            EngineEvent::Finished(output) => {
                self.metrics.end_to_end.record(now - self.started);
                let Usage { n_prompt, n_computed, n_cached, n_generated, n_preemptions } = output.usage;
                self.usage.n_prompt += n_prompt;
                self.usage.n_computed += n_computed;
                self.usage.n_cached += n_cached;
                self.usage.n_generated += n_generated;
                self.usage.n_preemptions += n_preemptions;
                self.trace.iter().for_each(|trace| trace.finished(self.usage));
            }
            _ => {}
        }
    }
}

fn timed_out() -> ApiError {
    let message = "the request took longer than --request-timeout allows: shorten it, or raise the limit";
    ApiError { code: Some("timeout"), ..ApiError::new(StatusCode::GATEWAY_TIMEOUT, message) }
}

/// Why a text ended, as OpenAI and vLLM name it.
pub fn finish_reason(finish: &Finish) -> &'static str {
    match finish {
        Finish::Length => "length",
        Finish::Stop(_) | Finish::StopToken(_) | Finish::Eos => "stop",
        Finish::Cancelled => "abort",
    }
}
