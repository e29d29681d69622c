//! Just enough of HTTP/1.1 for the registry of the tests.

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

pub struct Request {
    pub method: String,
    pub path: String,
    pub query: String,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Request {
    /// A header, by its name in small letters.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    fn read(stream: &mut impl BufRead) -> Option<Request> {
        let mut line = String::new();
        stream.read_line(&mut line).ok().filter(|&n| n > 0)?;
        let mut words = line.split_whitespace();
        let (method, target) = (words.next()?.to_string(), words.next()?.to_string());
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).ok()?;
            let Some((name, value)) = line.trim().split_once(':') else { break };
            headers.push((name.to_lowercase(), value.trim().to_string()));
        }
        let [path, query] = [path, query].map(String::from);
        let mut request = Request { method, path, query, headers, body: Vec::new() };
        let n = request.header("content-length").and_then(|n| n.parse().ok()).unwrap_or(0);
        request.body = vec![0; n];
        stream.read_exact(&mut request.body).ok()?;
        Some(request)
    }
}

pub struct Response {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    /// The connection ends after so many bytes of the body.
    pub drop_after: Option<usize>,
    /// The connection ends without an answer.
    pub is_hung_up: bool,
    /// The wait before each 16 KiB.
    pub pause: Option<Duration>,
}

impl Response {
    pub fn new(status: u16, body: Vec<u8>) -> Response {
        Response { status, headers: Vec::new(), body, drop_after: None, is_hung_up: false, pause: None }
    }

    pub fn header(mut self, name: &'static str, value: String) -> Response {
        self.headers.push((name, value));
        self
    }

    /// Whether the connection goes on.
    fn write(self, stream: &mut TcpStream, has_body: bool) -> std::io::Result<bool> {
        if self.is_hung_up {
            return Ok(false);
        }
        let mut head = format!("HTTP/1.1 {} X\r\n", self.status);
        if self.status != 204 {
            head += &format!("Content-Length: {}\r\n", self.body.len());
        }
        self.headers.iter().for_each(|(name, value)| head += &format!("{name}: {value}\r\n"));
        stream.write_all(format!("{head}\r\n").as_bytes())?;
        let n = self.drop_after.unwrap_or(usize::MAX).min(self.body.len());
        for chunk in self.body[..n].chunks(16 << 10).filter(|_| has_body) {
            self.pause.into_iter().for_each(std::thread::sleep);
            stream.write_all(chunk)?;
        }
        Ok(self.drop_after.is_none())
    }
}

/// Answers the requests of a connection.
pub fn serve(mut stream: TcpStream, answer: impl Fn(&Request) -> Response) {
    let Ok(read_half) = stream.try_clone() else { return };
    let mut reader = BufReader::new(read_half);
    while let Some(request) = Request::read(&mut reader) {
        let has_body = request.method != "HEAD";
        if !answer(&request).write(&mut stream, has_body).unwrap_or(false) {
            let _ = stream.shutdown(Shutdown::Both);
            return;
        }
    }
}
