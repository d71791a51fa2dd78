"""An offer as Chromium makes it."""

OFFER = """v=0
o=- 4611731400430051336 2 IN IP4 127.0.0.1
s=-
t=0 0
a=group:BUNDLE 0 1
m=audio 9 UDP/TLS/RTP/SAVPF 111 0
c=IN IP4 0.0.0.0
a=rtcp:9 IN IP4 0.0.0.0
a=candidate:1 1 udp 2113937151 0b2c1a0e-1b2c-4d5e-8f90-a1b2c3d4e5f6.local 50000 typ host
a=candidate:2 1 udp 2113937150 192.0.2.7 50001 typ host
a=end-of-candidates
a=ice-ufrag:Oyef
a=ice-pwd:7C8Hr2lcmNdWzGv1uVAGRiD5
a=fingerprint:sha-256 AA:BB
a=setup:actpass
a=mid:0
a=sendrecv
a=rtcp-mux
a=rtpmap:111 opus/48000/2
a=rtpmap:0 PCMU/8000
m=application 9 UDP/DTLS/SCTP webrtc-datachannel
c=IN IP4 0.0.0.0
a=ice-ufrag:Oyef
a=ice-pwd:7C8Hr2lcmNdWzGv1uVAGRiD5
a=fingerprint:sha-256 AA:BB
a=setup:actpass
a=mid:1
a=sctp-port:5000
"""
