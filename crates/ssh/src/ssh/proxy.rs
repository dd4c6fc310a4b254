//! Streams to a host that is not reached by a plain TCP connection.

use std::io;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use etcdrun_base::mutant::{is_off, repair};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, DuplexStream, ReadBuf};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio_util::sync::CancellationToken;

use super::SshError;
use super::exec::{Exec, ExecEvent};

/// Enough of what a helper complains about to explain why it failed.
const COMPLAINT_LIMIT: usize = 2048;
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Between a helper and the session that runs through it.
const PIPE_BUFFER: usize = 256 * 1024;

/// What a helper wrote to its standard error.
#[derive(Debug, Clone, Default)]
pub(super) struct Complaint {
    kept: Arc<Mutex<Vec<u8>>>,
    /// Cancelled when there is nothing more to come.
    complete: CancellationToken,
}

impl Complaint {
    fn add(&self, bytes: &[u8]) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let room = COMPLAINT_LIMIT.saturating_sub(kept.len());
        kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// On one line; `None` if there was nothing. Waits a moment for a helper that is just ending:
    /// its last words may come after its last output.
    pub async fn text(&self) -> Option<String> {
        let _ = tokio::time::timeout(LAST_WORDS, self.complete.cancelled()).await;
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&kept);
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
        (!lines.is_empty()).then(|| lines.join("; "))
    }
}

/// A local command whose standard input and output are the connection.
pub(super) struct CommandStream {
    input: ChildStdin,
    output: ChildStdout,
    child: Child,
}

impl CommandStream {
    pub fn start(command: &str) -> io::Result<(Self, Complaint)> {
        let mut child = Command::new("/bin/sh")
            .arg("-c")
            .arg(format!("exec {command}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C is for us to handle; it must not cut connections of commands still running.
            .process_group(0)
            .spawn()?;
        let complaint = Complaint::default();
        if let Some(stderr) = child.stderr.take() {
            tokio::spawn(listen(stderr, complaint.clone()));
        }
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("no pipes to the command"));
        };
        let stream = CommandStream { input, output, child };
        Ok((stream, complaint))
    }
}

async fn listen(mut stderr: ChildStderr, complaint: Complaint) {
    let _complete = complaint.complete.clone().drop_guard();
    let mut buffer = [0; 1024];
    while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
        complaint.add(&buffer[..count]);
    }
}

impl Drop for CommandStream {
    fn drop(&mut self) {
        // The whole group: the command may have started others. Its leader has not been waited
        // for, so the id is still ours.
        let leader = self.child.id().and_then(|id| i32::try_from(id).ok());
        if let Some(group) = leader.and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
}

impl AsyncRead for CommandStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.output).poll_read(cx, buf)
    }
}

impl AsyncWrite for CommandStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.input).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.input).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.input).poll_shutdown(cx)
    }
}

/// The command that stands in for direct-tcpip on a jump host that forbids forwarding.
///
/// The address comes from the inventory or the SSH configuration; anything but a plain host name
/// or address is refused, because it goes through a shell.
pub(super) fn relay_command(host: &str, port: u16) -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || ".:-_%".contains(c);
    if !is_off(repair::RELAY_ADDRESS) && (host.is_empty() || host.starts_with('-') || !host.chars().all(plain)) {
        return None;
    }
    let socat_host = match host.contains(':') {
        true => format!("[{host}]"),
        false => host.to_owned(),
    };
    Some(format!(
        "if command -v nc >/dev/null 2>&1; then exec nc '{host}' {port}; \
         elif command -v busybox >/dev/null 2>&1; then exec busybox nc '{host}' {port}; \
         elif command -v socat >/dev/null 2>&1; then exec socat - 'TCP:{socat_host}:{port}'; \
         else echo 'it has none of nc, busybox and socat' >&2; exit 127; fi"
    ))
}

/// Turns a running relay into a stream. The relay ends when the stream is dropped.
pub(super) fn relay_stream(exec: Exec) -> (DuplexStream, Complaint) {
    let (near, far) = tokio::io::duplex(PIPE_BUFFER);
    let complaint = Complaint::default();
    let heard = complaint.clone();
    let (mut writer, mut reader) = exec.split();
    let (mut from_us, mut to_us) = tokio::io::split(far);
    tokio::spawn(async move {
        let _complete = heard.complete.clone().drop_guard();
        let send = async {
            let mut buffer = bytes::BytesMut::with_capacity(PIPE_BUFFER);
            while let Ok(1..) = from_us.read_buf(&mut buffer).await {
                writer.write(buffer.split().freeze()).await?;
                buffer.reserve(32 * 1024);
            }
            Ok::<(), SshError>(())
        };
        let receive = async {
            while let Ok(Some(event)) = reader.next().await {
                let done = match event {
                    ExecEvent::Stdout(bytes) => write(&mut to_us, bytes).await.is_err(),
                    ExecEvent::Stderr(bytes) => {
                        heard.add(&bytes);
                        false
                    }
                    ExecEvent::Exit(_) | ExecEvent::Signal(_) => true,
                };
                if done {
                    break;
                }
            }
        };
        // Either side ending ends both, which closes the session and with it the relay.
        tokio::select! {
            _ = send => {}
            () = receive => {}
        }
    });
    (near, complaint)
}

async fn write(stream: &mut (impl AsyncWrite + Unpin), bytes: Bytes) -> io::Result<()> {
    tokio::io::AsyncWriteExt::write_all(stream, &bytes).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_addresses_reach_the_relay_shell() {
        assert!(relay_command("10.0.0.1", 22).is_some());
        assert!(relay_command("fe80::1%eth0", 22).unwrap().contains("TCP:[fe80::1%eth0]:22"));
        for bad in ["", "-e", "a b", "a;b", "$(x)", "a'b"] {
            assert!(relay_command(bad, 22).is_none(), "{bad}");
        }
    }
}
