//! A pipe between tasks and threads. What goes through it is handed on piece by piece, and not copied into buffers on its way.

use std::io;

use bytes::Bytes;
use futures_util::{SinkExt, stream};
use tokio::{
    io::{AsyncBufRead, AsyncWrite},
    sync::mpsc,
};
use tokio_util::{
    io::{CopyToBytes, SinkWriter, StreamReader},
    sync::PollSender,
};

/// How many pieces are under way. They are as large as what is written at once: 32 KiB of a snapshot, 128 KiB of zstd.
const PIECES: usize = 16;

/// The end to write to. Whoever reads comes to the end when it is dropped.
pub(crate) struct Inlet(mpsc::Sender<Bytes>);

pub(crate) fn pipe() -> (Inlet, impl AsyncBufRead + Send + Unpin + 'static) {
    let (sender, mut receiver) = mpsc::channel(PIECES);
    let pieces = stream::poll_fn(move |context| receiver.poll_recv(context).map(|piece| piece.map(Ok::<_, io::Error>)));
    (Inlet(sender), StreamReader::new(pieces))
}

impl Inlet {
    /// For a task.
    pub fn for_task(self) -> impl AsyncWrite + Send + Unpin + 'static {
        let sender = PollSender::new(self.0).sink_map_err(|_| nobody_reads());
        SinkWriter::new(CopyToBytes::new(sender))
    }
}

/// For a thread that may wait.
impl io::Write for Inlet {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !bytes.is_empty() {
            self.0.blocking_send(Bytes::copy_from_slice(bytes)).map_err(|_| nobody_reads())?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn nobody_reads() -> io::Error {
    io::ErrorKind::BrokenPipe.into()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn what_goes_in_comes_out_and_the_end_is_told() {
        let (inlet, mut outlet) = pipe();
        let writing = tokio::task::spawn_blocking(move || {
            let mut inlet = inlet;
            (0..100u8).try_for_each(|number| inlet.write_all(&vec![number; usize::from(number) * 100]))
        });
        let mut read = Vec::new();
        outlet.read_to_end(&mut read).await.unwrap();
        writing.await.unwrap().unwrap();
        let written: Vec<u8> = (0..100u8).flat_map(|number| vec![number; usize::from(number) * 100]).collect();
        assert!(read == written, "{} bytes", read.len());

        let (inlet, mut outlet) = pipe();
        let mut inlet = inlet.for_task();
        inlet.write_all(b"some").await.unwrap();
        drop(inlet);
        read.clear();
        outlet.read_to_end(&mut read).await.unwrap();
        assert_eq!(read, b"some");
    }

    #[tokio::test]
    async fn who_writes_hears_that_nobody_reads() {
        let (inlet, outlet) = pipe();
        let mut inlet = inlet.for_task();
        drop(outlet);
        assert_eq!(inlet.write_all(b"some").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
