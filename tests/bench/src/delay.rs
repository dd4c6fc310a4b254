//! A distant network on loopback: a proxy that holds every byte back for half a round trip.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    runtime::Runtime,
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::{Instant, sleep_until},
};

/// Runs until it goes out of scope.
pub struct Proxy {
    pub port: u16,
    _runtime: Runtime,
}

impl Proxy {
    /// Answers on every address of loopback, and hands on to the same address at another port.
    pub fn start(to: u16, round_trip: Duration) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind("0.0.0.0:0"))?;
        let port = listener.local_addr()?.port();
        runtime.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(client, to, round_trip / 2));
            }
        });
        Ok(Self { port, _runtime: runtime })
    }
}

/// Errors end a connection here as they would on the way.
async fn serve(client: TcpStream, port: u16, delay: Duration) -> io::Result<()> {
    let address: IpAddr = client.local_addr()?.ip();
    let server = TcpStream::connect(SocketAddr::new(address, port)).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::spawn(carry(from_client, to_server, delay));
    carry(from_server, to_client, delay).await;
    Ok(())
}

async fn carry(from: OwnedReadHalf, to: OwnedWriteHalf, delay: Duration) {
    let (sender, receiver) = unbounded_channel();
    tokio::join!(take(from, sender, delay), give(to, receiver));
}

async fn take(mut from: OwnedReadHalf, sender: UnboundedSender<(Instant, Vec<u8>)>, delay: Duration) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if sender.send((Instant::now() + delay, buffer[..read].to_vec())).is_err() {
            return;
        }
    }
}

async fn give(mut to: OwnedWriteHalf, mut receiver: UnboundedReceiver<(Instant, Vec<u8>)>) {
    while let Some((at, bytes)) = receiver.recv().await {
        sleep_until(at).await;
        if to.write_all(&bytes).await.is_err() {
            return;
        }
    }
}
