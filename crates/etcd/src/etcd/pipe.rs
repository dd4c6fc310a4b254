//! A pipe between tasks. What goes through it is handed on piece by piece, and not copied into buffers on its way.

use std::io;

use futures_util::{SinkExt, stream};
use tokio::{
    io::{AsyncBufRead, AsyncWrite},
    sync::mpsc,
};
use tokio_util::{
    io::{CopyToBytes, SinkWriter, StreamReader},
    sync::PollSender,
};

/// How many pieces are under way. They are as large as what is written at once: 32 KiB of a snapshot.
const PIECES: usize = 16;

/// The ends to write to and to read from. Whoever reads comes to the end when the other one is dropped.
pub fn pipe() -> (impl AsyncWrite + Send + Unpin + 'static, impl AsyncBufRead + Send + Unpin + 'static) {
    let (sender, mut receiver) = mpsc::channel(PIECES);
    let nobody_reads = |_| io::Error::from(io::ErrorKind::BrokenPipe);
    let writer = SinkWriter::new(CopyToBytes::new(PollSender::new(sender).sink_map_err(nobody_reads)));
    let pieces = stream::poll_fn(move |context| receiver.poll_recv(context).map(|piece| piece.map(Ok::<_, io::Error>)));
    (writer, StreamReader::new(pieces))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn what_goes_in_comes_out_and_the_end_is_told() {
        let (mut writer, mut reader) = pipe();
        let pieces = || (0..100u8).map(|number| vec![number; usize::from(number) * 100]);
        let writing = tokio::spawn(async move {
            for piece in pieces() {
                writer.write_all(&piece).await.unwrap();
            }
        });
        let mut read = Vec::new();
        reader.read_to_end(&mut read).await.unwrap();
        writing.await.unwrap();
        let written: Vec<u8> = pieces().flatten().collect();
        assert!(read == written, "{} bytes", read.len());
    }

    #[tokio::test]
    async fn who_writes_hears_that_nobody_reads() {
        let (mut writer, reader) = pipe();
        drop(reader);
        assert_eq!(writer.write_all(b"some").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
