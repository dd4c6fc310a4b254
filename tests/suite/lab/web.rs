//! A web server on this machine that hosts of the lab can reach.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    path::PathBuf,
};

use super::lab;

/// Serves the files of a folder until the test ends.
pub struct Web {
    address: String,
}

impl Web {
    pub fn start(folder: PathBuf) -> Self {
        let listener = TcpListener::bind((lab().subnet().operator(), 0)).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let folder = folder.clone();
                std::thread::spawn(move || answer(stream, folder));
            }
        });
        Self { address }
    }

    pub fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.address)
    }
}

/// Whoever goes away in the middle is not our concern.
fn answer(mut stream: TcpStream, folder: PathBuf) {
    let Ok(copy) = stream.try_clone() else { return };
    let mut lines = BufReader::new(copy).lines().map_while(Result::ok);
    let first = lines.next().unwrap_or_default();
    let words: Vec<&str> = first.split(' ').collect();
    let from = lines.take_while(|line| !line.is_empty()).find_map(|line| {
        let line = line.to_ascii_lowercase();
        line.strip_prefix("range: bytes=")?.split('-').next()?.parse::<usize>().ok()
    });
    let body = words.get(1).and_then(|path| fs::read(folder.join(path.trim_start_matches('/'))).ok());
    let _ = match (body, from) {
        (None, _) => stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"),
        (Some(body), from) => {
            let (from, all) = (from.unwrap_or(0).min(body.len()), body.len());
            let head = match from {
                0 => "HTTP/1.1 200 OK\r\n".to_owned(),
                _ => format!("HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {from}-{}/{all}\r\n", all - 1),
            };
            let head = format!("{head}Content-Length: {}\r\nConnection: close\r\n\r\n", all - from);
            stream.write_all(head.as_bytes()).and_then(|()| match words.first() {
                Some(&"HEAD") => Ok(()),
                _ => stream.write_all(&body[from..]),
            })
        }
    };
}
