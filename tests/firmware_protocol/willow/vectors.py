"""Messages of Willow's `/ws` as they are on the wire, each with where its form comes from.

W: the firmware, `toverainc/willow` @517d4b5, `main/was.c` and `main/audio.c` (cJSON_Print: tabs and
line breaks). S: WAS, `toverainc/willow-application-server` @0e4dde9, `app/main.py` and
`app/internal/`. Values are made up.
"""

from dataclasses import dataclass

from firmware_protocol.willow.messages import (
    CancelNotify,
    ConfigMessage,
    Endpoint,
    EndpointResult,
    FromDevice,
    GetConfig,
    Goodbye,
    Hello,
    Identify,
    Notify,
    NotifyDone,
    NvsMessage,
    OtaStart,
    Restart,
    ToDevice,
    UnknownMessage,
    WakeEnd,
    WakeResult,
    WakeStart,
)


@dataclass(frozen=True, slots=True)
class Heard:
    origin: str
    wire: str
    message: FromDevice


@dataclass(frozen=True, slots=True)
class Told:
    origin: str
    message: ToDevice
    wire: str


_WHO = (
    '{\n\t"%s":\t{\n\t\t"hostname":\t"willow-84fce6000102",\n\t\t"hw_type":\t"ESP32-S3-BOX-3",'
    '\n\t\t"mac_addr":\t[132, 252, 230, 0, 1, 2]\n\t}\n}'
)
_IS = ("willow-84fce6000102", "ESP32-S3-BOX-3", "84:fc:e6:00:01:02")

FROM_DEVICE = (
    Heard("W send_hello_goodbye", _WHO % "hello", Hello(*_IS)),
    Heard("W deinit_was", _WHO % "goodbye", Goodbye(*_IS)),
    Heard("W request_config", '{\n\t"cmd":\t"get_config"\n}', GetConfig()),
    Heard(
        "W send_wake_start",
        '{\n\t"wake_start":\t{\n\t\t"wake_volume":\t-6.5625\n\t}\n}',
        WakeStart(-6.5625),
    ),
    Heard("W cJSON of NaN", '{"wake_start":{"wake_volume":null}}', WakeStart(None)),
    Heard("S tests for wake_volume: it may be absent", '{"wake_start":{}}', WakeStart(None)),
    Heard("W send_wake_end", '{\n\t"wake_end":\t{\n\t}\n}', WakeEnd()),
    Heard(
        "W was_send_endpoint, WIS's answer as it is",
        '{\n\t"cmd":\t"endpoint",\n\t"data":\t{\n\t\t"language":\t"en",\n\t\t"text":\t'
        '"turn on the light",\n\t\t"infer_time":\t84.5\n\t}\n}',
        Endpoint("turn on the light", "en"),
    ),
    Heard(
        "W MultiNet's commands",
        '{"cmd":"endpoint","data":{"text":"TURN ON LIGHT","language":"en"}}',
        Endpoint("TURN ON LIGHT", "en"),
    ),
    Heard("W any object is passed on", '{"cmd":"endpoint","data":{}}', Endpoint("", "")),
    Heard(
        "W notify_task, cJSON's number",
        '{\n\t"notify_done":\t1763823600000\n}',
        NotifyDone(1763823600000),
    ),
    Heard("cJSON may write 1e3", '{"notify_done":1e3}', NotifyDone(1000)),
    Heard(
        "W branch feature/end_of_response",
        '{"response_end":{}}',
        UnknownMessage(("response_end",)),
    ),
    Heard("a command of newer firmware", '{"cmd":"sing"}', UnknownMessage(("cmd sing",))),
)

TO_DEVICE = (
    Told("S wake.py", WakeResult(True), '{"wake_result":{"won":true}}'),
    Told("S wake.py", WakeResult(False), '{"wake_result":{"won":false}}'),
    Told(
        "S command_endpoints",
        EndpointResult(True, "Done."),
        '{"result":{"ok":true,"speech":"Done."}}',
    ),
    Told(
        "W appends it to a URL: one line",
        EndpointResult(True, " It is\r\nhalf  past\u2028ten. "),
        '{"result":{"ok":true,"speech":"It is half past ten."}}',
    ),
    Told("W says Error itself", EndpointResult(False, ""), '{"result":{"ok":false,"speech":""}}'),
    Told(
        "S notify.py",
        Notify(
            id=1763823600000,
            text="Tea",
            audio_url="http://192.168.1.2:8502/api/tts?text=Tea",
            repeat=2,
            volume=70,
            backlight=True,
            backlight_max=False,
            strobe_period_ms=500,
        ),
        '{"cmd":"notify","data":{"id":1763823600000,"text":"Tea",'
        '"audio_url":"http://192.168.1.2:8502/api/tts?text=Tea","repeat":2,"volume":70,'
        '"backlight":true,"backlight_max":false,"strobe_period_ms":500}}',
    ),
    Told(
        "W has defaults for what is absent",
        Notify(id=2, text="Tea"),
        '{"cmd":"notify","data":{"id":2,"text":"Tea"}}',
    ),
    Told("S notify.py, done", CancelNotify(7), '{"cmd":"notify","data":{"id":7,"cancel":true}}'),
    Told("S client.py", Identify(), '{"cmd":"identify"}'),
    Told("S client.py", Restart(), '{"cmd":"restart"}'),
    Told(
        "S client.py",
        OtaStart("http://192.168.1.2:8502/api/ota?version=0.4.2&platform=ESP32-S3-BOX"),
        '{"cmd":"ota_start","ota_url":'
        '"http://192.168.1.2:8502/api/ota?version=0.4.2&platform=ESP32-S3-BOX"}',
    ),
    Told(
        "S build_msg",
        ConfigMessage({"wake_word": "alexa", "speaker_volume": 60, "aec": True}),
        '{"config":{"wake_word":"alexa","speaker_volume":60,"aec":true}}',
    ),
    Told(
        "S build_msg",
        NvsMessage("ws://192.168.1.2:8502/ws", "home", "correct horse"),
        '{"nvs":{"WAS":{"URL":"ws://192.168.1.2:8502/ws"},'
        '"WIFI":{"SSID":"home","PSK":"correct horse"}}}',
    ),
    Told(
        "W takes each of the two alone",
        NvsMessage(was_url="ws://192.168.1.2:8502/ws"),
        '{"nvs":{"WAS":{"URL":"ws://192.168.1.2:8502/ws"}}}',
    ),
)
