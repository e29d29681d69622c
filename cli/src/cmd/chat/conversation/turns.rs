//! The messages of a conversation: a system message or none, then turns of a user's message and its answer.

use llmrt_tokenizer::Message;

/// All messages, and how many of the oldest the model no longer gets.
pub struct Turns {
    system: Option<Message>,
    messages: Vec<Message>,
    n_dropped: usize,
    /// Bytes at the beginning of the answer before the last message of the user that the model no longer gets.
    n_cut: usize,
}

impl Turns {
    /// No turn, after this system message.
    pub fn new(system: Option<String>) -> Turns {
        let system = system.map(|text| Message::new("system", text));
        Turns { system, messages: Vec::new(), n_dropped: 0, n_cut: 0 }
    }

    /// The messages of a session file: a system message or none, then turns.
    pub fn of_messages(mut messages: Vec<Message>) -> Turns {
        let has_system = messages.first().is_some_and(|message| message.role == "system");
        let system = has_system.then(|| messages.remove(0));
        Turns { system, messages, n_dropped: 0, n_cut: 0 }
    }

    pub fn push(&mut self, message: Message) {
        self.messages.push(message);
        self.n_cut = 0;
    }

    pub fn pop(&mut self) {
        self.messages.pop();
    }

    /// Takes the last answer off.
    pub fn pop_answer(&mut self) -> Option<Message> {
        self.messages.pop_if(|message| message.role == "assistant")
    }

    /// Removes all but the system message.
    pub fn clear(&mut self) {
        self.messages.clear();
        (self.n_dropped, self.n_cut) = (0, 0);
    }

    /// All messages, dropped ones too.
    pub fn all(&self) -> impl Iterator<Item = &Message> {
        self.system.iter().chain(&self.messages)
    }

    /// The system message.
    pub fn system(&self) -> Option<&str> {
        self.system.as_ref().map(|message| message.content.as_str())
    }

    /// What the model gets: the system message and the turns that are not dropped, the last answer without its cut.
    pub fn kept(&self) -> Vec<Message> {
        let mut kept: Vec<_> = self.system.iter().chain(&self.messages[self.n_dropped..]).cloned().collect();
        if let [.., answer, _] = &mut kept[..]
            && self.n_cut > 0
        {
            answer.content.drain(..self.n_cut);
        }
        kept
    }

    /// Messages that are dropped.
    pub fn n_dropped(&self) -> usize {
        self.n_dropped
    }

    /// Goes back to so many dropped messages.
    pub fn set_dropped(&mut self, n: usize) {
        self.n_dropped = n.min(self.messages.len());
        self.n_cut = 0;
    }

    /// Whether one turn is left before the last message.
    pub fn has_one_answer(&self) -> bool {
        self.messages.len() - self.n_dropped == 3
    }

    /// Cuts the first sentence off the answer before the last message; `false` if that is its last one.
    pub fn cut_answer(&mut self) -> bool {
        let [.., answer, _] = &self.messages[self.n_dropped..] else { return false };
        let rest = &answer.content[self.n_cut..];
        let mut ends = rest.match_indices(['.', '!', '?', '\n']).map(|(at, end)| at + end.len());
        let next = ends.find_map(|end| {
            let after = rest[end..].trim_start_matches('"');
            let next = after.trim_start();
            (next.len() < after.len() && !next.is_empty()).then(|| rest.len() - next.len())
        });
        self.n_cut += next.unwrap_or(0);
        next.is_some()
    }

    /// Whether there is a turn to drop before the last message of the user.
    pub fn has_oldest(&self) -> bool {
        self.next_turn().is_some()
    }

    /// Drops the oldest turn; `false` if it is the one with the last message of the user.
    pub fn drop_oldest(&mut self) -> bool {
        let next = self.next_turn();
        self.n_dropped = next.unwrap_or(self.n_dropped);
        next.is_some()
    }

    /// Where the second of the turns that are left begins.
    fn next_turn(&self) -> Option<usize> {
        let users = self.messages.iter().enumerate().skip(self.n_dropped + 1);
        users.into_iter().find(|(_, message)| message.role == "user").map(|(i, _)| i)
    }
}
