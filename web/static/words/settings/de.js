// Labels, choices and help of the settings in German, by the server's English text.

/** @type {Record<string, string>} */
export const SETTING_TEXTS = {
  "Agent ID": "Kennung des Agenten",
  "Answer timeout (s)": "Wartezeit auf eine ganze Antwort (s)",
  "Barge in": "Unterbrechen durch Sprechen",
  "Connect timeout (s)": "Höchstdauer des Verbindens (s)",
  "Context tokens": "Größe des Kontexts (Tokens)",
  "Default instructions": "Mitgelieferte Anweisungen",
  Detection: "Erkennung des Endes",
  Eagerness: "Eile",
  Engine: "Engine",
  "First token timeout (s)": "Wartezeit auf das erste Token (s)",
  Images: "Bilder",
  Language: "Sprache",
  Languages: "Sprachen",
  "Max drafts": "Höchstzahl der Entwürfe",
  "Max output tokens": "Längste Antwort (Tokens)",
  "Max requests": "Höchstzahl der Anfragen",
  "No speech": "Geräusche ohne Sprache",
  "Noise reduction": "Rauschunterdrückung",
  "Prefix padding (ms)": "Ton vor der Sprache (ms)",
  "Silence (ms)": "Stille (ms)",
  "Starts thinking": "Beginnt mit Nachdenken",
  Strict: "Streng",
  Temperature: "Temperatur",
  Thinking: "Nachdenken",
  Threshold: "Schwelle",
  Token: "Token",
  "Token timeout (s)": "Wartezeit zwischen Tokens (s)",
  Tools: "Werkzeuge",
  URL: "Adresse",
  "Unload after (s)": "Entladen nach (s)",
  Use: "Art der Steuerung",
  "Verify TLS": "TLS-Zertifikat prüfen",
  conversation: "Gesprächsagent",
  far_field: "fern",
  high: "hoch",
  low: "niedrig",
  medium: "mittel",
  near_field: "nah",
  normal: "üblich",
  on: "An",
  patient: "geduldig",
  semantic_vad: "Stille und Wörter",
  server_vad: "nur Stille",
  strict: "streng",
  tools: "Agent und Werkzeuge",
  wake_word: "Aktivierungs- oder Stoppwort",
  "Address of Home Assistant, like http://homeassistant.local:8123. Empty: the demo home is used.":
    "Adresse von Home Assistant, etwa http://homeassistant.local:8123. Leer: Das Demo-Zuhause wird benutzt.",
  "Address of the API including its version: `http://127.0.0.1:8000/v1`.":
    "Adresse der API mit ihrer Version: `http://127.0.0.1:8000/v1`.",
  "Control of Home Assistant by a language model: by sentences to its conversation agent (conversation), or also by the tools of its MCP server, which needs an integration there (tools). Recognised commands are always sent as sentences.":
    "Wie ein Sprachmodell Home Assistant steuert: durch Sätze an dessen Gesprächsagenten (Gesprächsagent) oder auch mit den Werkzeugen seines MCP-Servers, der dort eine Integration braucht (Agent und Werkzeuge). Erkannte Befehle werden immer als Sätze gesendet.",
  "Filter for words that were recognised in noise: off keeps all of them; normal drops those that the model itself doubts; strict also drops those that voice activity detection doubts. A request can override this with no_speech_threshold.":
    "Filter für Wörter, die in Geräuschen erkannt wurden: „Aus“ behält alle; „üblich“ verwirft, was das Modell selbst bezweifelt; „streng“ verwirft auch, was die Erkennung der Sprachaktivität bezweifelt. Eine Anfrage kann das mit no_speech_threshold ändern.",
  "Handling of the echo of an answer in the microphone, for clients without echo cancellation: none (off), the echo is cancelled (cancel), or the microphone is ignored while an answer plays (half_duplex).":
    "Umgang mit dem Echo einer Antwort im Mikrofon, für Clients ohne eigene Echounterdrückung: keiner (Aus), das Echo wird herausgerechnet (Herausrechnen), oder das Mikrofon wird ignoriert, während eine Antwort läuft (Nur in Stille zuhören).",
  "How readily semantic_vad ends a turn: high is fastest, low waits longest.":
    "Wie schnell die Erkennung mit Stille und Wörtern das Ende annimmt: „hoch“ ist am schnellsten, „niedrig“ wartet am längsten.",
  "ISO 639-1 codes of the languages that the model understands. Empty: any.":
    "Codes (ISO 639-1) der Sprachen, die das Modell versteht. Leer: alle.",
  "Id of the conversation agent in Home Assistant that receives the sentences.":
    "Kennung des Gesprächsagenten in Home Assistant, der die Sätze erhält.",
  "Key that the server asks for; empty: none.": "Schlüssel, den der Server verlangt. Leer: keiner.",
  "Language (ISO 639-1) of sessions whose client names none.":
    "Sprache (ISO 639-1) der Sitzungen, deren Client keine nennt.",
  "Language of the sentences for Home Assistant. Empty: the user's language.":
    "Sprache der Sätze für Home Assistant. Leer: die Sprache des Benutzers.",
  "Long-lived access token, from the profile of the user whose rights Earshot gets.":
    "Langlebiges Zugriffstoken aus dem Profil des Benutzers, dessen Rechte Earshot bekommt.",
  "Longest answer, including thoughts; a spoken answer has 50 to 150 tokens. Never more than a quarter of the context is used: servers refuse a prompt that leaves no room for the answer.":
    "Längste Antwort samt Gedanken; eine gesprochene Antwort hat 50 bis 150 Tokens. Es wird nie mehr als ein Viertel des Kontexts benutzt: Server weisen eine Anfrage ab, die keinen Platz für die Antwort lässt.",
  "Longest wait between two tokens.": "Längste Wartezeit zwischen zwei Tokens.",
  "Longest wait for a connection.": "Längste Wartezeit auf eine Verbindung.",
  "Longest wait for an answer that is not streamed.":
    "Längste Wartezeit auf eine Antwort, die nicht stückweise kommt.",
  "Maximum number of answers, over all sessions, that are started before it is certain that the user has finished. Unused ones cost money with a paid language model. 0: none.":
    "So viele Antworten, über alle Sitzungen, werden höchstens begonnen, bevor sicher ist, dass der Benutzer fertig ist. Unbenutzte kosten bei einem bezahlten Sprachmodell Geld. 0: keine.",
  "Most requests at once; a further one waits. Not set: 16, or more with many drafts.":
    "So viele Anfragen gehen höchstens zugleich hinaus; eine weitere wartet. Nicht gesetzt: 16, oder mehr bei vielen Entwürfen.",
  "Maximum number of tokens in one answer. Not set: no limit.":
    "Höchstzahl der Tokens einer Antwort. Nicht gesetzt: keine Grenze.",
  "Method of detecting the end of a turn. server_vad waits for silence_ms of silence; semantic_vad also considers the words, and waits as long as eagerness allows.":
    "Woran das Ende deines Satzes erkannt wird. „nur Stille“ wartet die eingestellte Stille ab; „Stille und Wörter“ beachtet auch die Wörter und wartet so lange, wie die Eile es zulässt.",
  "Milliseconds of audio that are kept from before the first speech frame.":
    "So viele Millisekunden Ton vor dem ersten Laut werden behalten.",
  "Milliseconds of silence that end the user's turn. A lower value is faster, but interrupts people who pause.":
    "Nach so vielen Millisekunden Stille gilt der Satz als beendet. Ein kleinerer Wert ist schneller, fällt aber Menschen ins Wort, die eine Pause machen.",
  "Model to load at start: a folder in models_dir, its short name (tiny, large-v3-turbo), pocketsphinx, the path of a folder, or auto.":
    "Modell, das beim Start geladen wird: ein Ordner in models_dir, sein kurzer Name (tiny, large-v3-turbo), pocketsphinx, der Pfad eines Ordners, oder automatisch.",
  "Name of an engine (`earshot doctor` lists them), or auto.":
    "Name einer Engine (`earshot doctor` listet sie auf) oder automatisch.",
  "Name of its engine.": "Name seiner Engine.",
  "Name of the model; auto: the first that the server lists.":
    "Name des Modells; auto: das erste, das der Server nennt.",
  "Names of the tools that the language model may use. Not set: all tools.":
    "Namen der Werkzeuge, die das Sprachmodell benutzen darf. Nicht gesetzt: alle.",
  "Rate of speech of the voice; 1 is normal.": "Sprechtempo der Stimme; 1 ist üblich.",
  "Reduction of steady noise before speech detection and recognition: none (off), a little, for a microphone near the mouth (near_field), or more, for one across the room (far_field).":
    "Unterdrückung gleichmäßiger Geräusche vor der Erkennung: keine (Aus), ein wenig, für ein Mikrofon nahe am Mund (nah), oder mehr, für eines am anderen Ende des Raums (fern).",
  "Sampling temperature of the language model. Not set: the engine's default.":
    "Temperatur, mit der das Sprachmodell seine Wörter wählt. Nicht gesetzt: die der Engine.",
  "Sampling temperature. Not set: the server's default.":
    "Temperatur, mit der das Modell seine Wörter wählt. Nicht gesetzt: die des Servers.",
  "Seconds without a use after which a model is unloaded. The default models and pinned ones stay. 0: a model stays until another one needs its memory.":
    "Nach so vielen Sekunden ohne Benutzung wird ein Modell entladen. Die Standardmodelle und angeheftete bleiben. 0: Ein Modell bleibt, bis ein anderes seinen Speicher braucht.",
  "Size of the context. Not set: as the server says (vLLM, llama.cpp, Ollama), else 8192.":
    "Größe des Kontexts. Nicht gesetzt: wie der Server sie nennt (vLLM, llama.cpp, Ollama), sonst 8192.",
  "Speech probability at or above which a frame counts as speech.":
    "Ab dieser Wahrscheinlichkeit gilt ein Abschnitt des Tons als Sprache.",
  "Speech that interrupts an answer that is playing: any speech (on), only meaningful words (patient), only the wake word or a word that means stop (wake_word), or none (off).":
    "Was eine laufende Antwort unterbricht: jedes Sprechen (An), nur Wörter mit Sinn (geduldig), nur das Aktivierungswort oder ein Wort wie „stopp“ (Aktivierungs- oder Stoppwort) oder nichts (Aus).",
  "System prompt of the language model. It replaces Earshot's own.":
    "Grundanweisung an das Sprachmodell. Sie ersetzt die von Earshot.",
  "True: an unknown model name is an error (404) that lists the known ones. False: an unknown name means the server's default model. Names of OpenAI's service always mean the default model.":
    "An: Ein unbekannter Modellname ist ein Fehler (404), der die bekannten nennt. Aus: Ein unbekannter Name bedeutet das Standardmodell des Servers. Namen des Dienstes von OpenAI bedeuten immer das Standardmodell.",
  "Voice of the answers: default, a voice, an engine, or engine/voice.":
    "Stimme der Antworten: die automatische, eine Stimme, eine Engine oder Engine/Stimme.",
  "Wait for the first token, retry included. A caller gives up sooner, but a cold model is slow.":
    "Wartezeit auf das erste Token, ein zweiter Versuch eingeschlossen. Wer fragt, gibt früher auf, aber ein gerade geladenes Modell ist langsam.",
  "Wake word, e.g. okay_nabu. Speech is ignored until it is detected. Empty: sessions listen from the start.":
    "Aktivierungswort, etwa okay_nabu. Bis es erkannt wird, wird nicht zugehört. Leer: Sitzungen hören von Anfang an zu.",
  "Whether the chat template itself opens the thought. Text before `</think>` is not spoken then.":
    "Ob die Chat-Vorlage selbst den Gedanken eröffnet. Text vor `</think>` wird dann nicht gesprochen.",
  "Whether the language model gets Earshot's own system prompt if there is no other. It asks for short spoken answers without markdown, names the date and the room, and is written in the language of the answer.":
    "Ob das Sprachmodell die Grundanweisung von Earshot bekommt, wenn es keine andere gibt. Sie verlangt kurze gesprochene Antworten ohne Markdown, nennt Datum und Raum und ist in der Sprache der Antwort geschrieben.",
  "Whether the model may call tools. Off for models that cannot.":
    "Ob das Modell Werkzeuge aufrufen darf. Aus für Modelle, die das nicht können.",
  "Whether the model may think before it answers, which takes seconds if it can.":
    "Ob das Modell vor der Antwort nachdenken darf. Das dauert Sekunden, wenn es das kann.",
  "Whether the model takes images, which no server announces.":
    "Ob das Modell Bilder annimmt. Kein Server gibt das an.",
  "Whether to verify the certificate of Home Assistant. False accepts any, such as a self-signed one.":
    "Ob das Zertifikat von Home Assistant geprüft wird. Aus: Jedes gilt, auch ein selbst unterschriebenes.",
};
