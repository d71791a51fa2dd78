// Labels, choices and help of the settings in Dutch, by the server's English text.

/** @type {Record<string, string>} */
export const SETTING_TEXTS = {
  "Agent ID": "Kenmerk van de agent",
  "Answer timeout (s)": "Wachttijd voor een heel antwoord (s)",
  "Barge in": "Onderbreken door te spreken",
  "Connect timeout (s)": "Wachttijd voor de verbinding (s)",
  "Context tokens": "Grootte van de context (tokens)",
  "Default instructions": "Standaardinstructies",
  Detection: "Herkenning van het einde",
  Eagerness: "Gretigheid",
  Engine: "Engine",
  "First token timeout (s)": "Wachttijd voor het eerste token (s)",
  Images: "Afbeeldingen",
  Language: "Taal",
  Languages: "Talen",
  "Max drafts": "Hoogste aantal concepten",
  "Max output tokens": "Langste antwoord (tokens)",
  "Max requests": "Hoogste aantal verzoeken",
  "No speech": "Geluid zonder spraak",
  "Noise reduction": "Ruisonderdrukking",
  "Prefix padding (ms)": "Geluid vóór de spraak (ms)",
  "Silence (ms)": "Stilte (ms)",
  "Starts thinking": "Begint met nadenken",
  Strict: "Streng",
  Temperature: "Temperatuur",
  Thinking: "Nadenken",
  Threshold: "Drempel",
  Token: "Toegangstoken",
  "Token timeout (s)": "Wachttijd tussen tokens (s)",
  Tools: "Hulpmiddelen",
  URL: "Adres",
  "Unload after (s)": "Uit het geheugen na (s)",
  Use: "Manier van bedienen",
  "Verify TLS": "TLS-certificaat controleren",
  conversation: "gespreksagent",
  far_field: "ver weg",
  high: "hoog",
  low: "laag",
  medium: "gemiddeld",
  near_field: "dichtbij",
  normal: "gewoon",
  on: "Aan",
  patient: "geduldig",
  semantic_vad: "stilte en woorden",
  server_vad: "alleen stilte",
  strict: "streng",
  tools: "agent en hulpmiddelen",
  wake_word: "activerings- of stopwoord",
  "Address of Home Assistant, like http://homeassistant.local:8123. Empty: the demo home is used.":
    "Adres van Home Assistant, zoals http://homeassistant.local:8123. Leeg: het demohuis wordt gebruikt.",
  "Address of the API including its version: `http://127.0.0.1:8000/v1`.":
    "Adres van de API met de versie: `http://127.0.0.1:8000/v1`.",
  "Control of Home Assistant by a language model: by sentences to its conversation agent (conversation), or also by the tools of its MCP server, which needs an integration there (tools). Recognised commands are always sent as sentences.":
    "Hoe een taalmodel Home Assistant bedient: met zinnen aan de gespreksagent (gespreksagent), of ook met de hulpmiddelen van de MCP-server, die daar een integratie nodig heeft (agent en hulpmiddelen). Herkende opdrachten worden altijd als zinnen gestuurd.",
  "Filter for words that were recognised in noise: off keeps all of them; normal drops those that the model itself doubts; strict also drops those that voice activity detection doubts. A request can override this with no_speech_threshold.":
    "Filter voor woorden die in geluid zijn herkend: “Uit” houdt ze allemaal; “gewoon” laat weg waaraan het model zelf twijfelt; “streng” laat ook weg waaraan de stemdetectie twijfelt. Een verzoek kan dit met no_speech_threshold wijzigen.",
  "Handling of the echo of an answer in the microphone, for clients without echo cancellation: none (off), the echo is cancelled (cancel), or the microphone is ignored while an answer plays (half_duplex).":
    "Omgang met de echo van een antwoord in de microfoon, voor clients zonder echo-onderdrukking: geen (Uit), de echo wordt weggefilterd (Wegfilteren), of de microfoon wordt genegeerd terwijl een antwoord klinkt (Alleen luisteren als het stil is).",
  "How readily semantic_vad ends a turn: high is fastest, low waits longest.":
    "Hoe snel de herkenning met stilte en woorden een beurt beëindigt: “hoog” is het snelst, “laag” wacht het langst.",
  "ISO 639-1 codes of the languages that the model understands. Empty: any.":
    "Codes (ISO 639-1) van de talen die het model begrijpt. Leeg: alle.",
  "Id of the conversation agent in Home Assistant that receives the sentences.":
    "Kenmerk van de gespreksagent in Home Assistant die de zinnen ontvangt.",
  "Key that the server asks for; empty: none.": "Sleutel die de server vraagt. Leeg: geen.",
  "Language (ISO 639-1) of sessions whose client names none.":
    "Taal (ISO 639-1) van sessies waarvan de client er geen noemt.",
  "Language of the sentences for Home Assistant. Empty: the user's language.":
    "Taal van de zinnen voor Home Assistant. Leeg: de taal van de gebruiker.",
  "Long-lived access token, from the profile of the user whose rights Earshot gets.":
    "Toegangstoken met lange levensduur, uit het profiel van de gebruiker wiens rechten Earshot krijgt.",
  "Longest answer, including thoughts; a spoken answer has 50 to 150 tokens. Never more than a quarter of the context is used: servers refuse a prompt that leaves no room for the answer.":
    "Langste antwoord, inclusief nadenken; een gesproken antwoord heeft 50 tot 150 tokens. Nooit wordt meer dan een kwart van de context gebruikt: servers weigeren een verzoek dat geen ruimte laat voor het antwoord.",
  "Longest wait between two tokens.": "Langste wachttijd tussen twee tokens.",
  "Longest wait for a connection.": "Langste wachttijd voor een verbinding.",
  "Longest wait for an answer that is not streamed.":
    "Langste wachttijd voor een antwoord dat niet in stukken komt.",
  "Maximum number of answers, over all sessions, that are started before it is certain that the user has finished. Unused ones cost money with a paid language model. 0: none.":
    "Hoogste aantal antwoorden, over alle sessies, waarmee wordt begonnen voordat zeker is dat de gebruiker klaar is. Ongebruikte kosten geld bij een betaald taalmodel. 0: geen.",
  "Most requests at once; a further one waits. Not set: 16, or more with many drafts.":
    "Hoogste aantal verzoeken tegelijk; een volgend verzoek wacht. Niet ingesteld: 16, of meer bij veel concepten.",
  "Maximum number of tokens in one answer. Not set: no limit.":
    "Hoogste aantal tokens in één antwoord. Niet ingesteld: geen grens.",
  "Method of detecting the end of a turn. server_vad waits for silence_ms of silence; semantic_vad also considers the words, and waits as long as eagerness allows.":
    "Hoe wordt herkend dat je uitgesproken bent. “alleen stilte” wacht de ingestelde stilte af; “stilte en woorden” let ook op de woorden en wacht zo lang als de gretigheid toelaat.",
  "Milliseconds of audio that are kept from before the first speech frame.":
    "Aantal milliseconden geluid dat van vóór het begin van de spraak wordt bewaard.",
  "Milliseconds of silence that end the user's turn. A lower value is faster, but interrupts people who pause.":
    "Aantal milliseconden stilte waarna je beurt voorbij is. Een lagere waarde is sneller, maar valt mensen in de rede die even pauzeren.",
  "Model to load at start: a folder in models_dir, its short name (tiny, large-v3-turbo), pocketsphinx, the path of a folder, or auto.":
    "Model dat bij het starten wordt geladen: een map in models_dir, de korte naam ervan (tiny, large-v3-turbo), pocketsphinx, het pad van een map, of automatisch.",
  "Name of an engine (`earshot doctor` lists them), or auto.":
    "Naam van een engine (`earshot doctor` noemt ze), of automatisch.",
  "Name of its engine.": "Naam van de engine ervan.",
  "Name of the model; auto: the first that the server lists.":
    "Naam van het model; auto: het eerste dat de server noemt.",
  "Names of the tools that the language model may use. Not set: all tools.":
    "Namen van de hulpmiddelen die het taalmodel mag gebruiken. Niet ingesteld: alle.",
  "Rate of speech of the voice; 1 is normal.": "Snelheid van de stem; 1 is gewoon.",
  "Reduction of steady noise before speech detection and recognition: none (off), a little, for a microphone near the mouth (near_field), or more, for one across the room (far_field).":
    "Onderdrukking van gelijkmatig geluid vóór de herkenning: geen (Uit), een beetje, voor een microfoon dicht bij de mond (dichtbij), of meer, voor een microfoon aan de andere kant van de kamer (ver weg).",
  "Sampling temperature of the language model. Not set: the engine's default.":
    "Temperatuur waarmee het taalmodel zijn woorden kiest. Niet ingesteld: die van de engine.",
  "Sampling temperature. Not set: the server's default.":
    "Temperatuur waarmee het model zijn woorden kiest. Niet ingesteld: die van de server.",
  "Seconds without a use after which a model is unloaded. The default models and pinned ones stay. 0: a model stays until another one needs its memory.":
    "Aantal seconden zonder gebruik waarna een model uit het geheugen gaat. De standaardmodellen en vastgezette modellen blijven. 0: een model blijft tot een ander zijn geheugen nodig heeft.",
  "Size of the context. Not set: as the server says (vLLM, llama.cpp, Ollama), else 8192.":
    "Grootte van de context. Niet ingesteld: zoals de server zegt (vLLM, llama.cpp, Ollama), anders 8192.",
  "Speech probability at or above which a frame counts as speech.":
    "Vanaf deze kans geldt een stukje geluid als spraak.",
  "Speech that interrupts an answer that is playing: any speech (on), only meaningful words (patient), only the wake word or a word that means stop (wake_word), or none (off).":
    "Wat een klinkend antwoord onderbreekt: alle spraak (Aan), alleen woorden met betekenis (geduldig), alleen het activeringswoord of een woord als ‘stop’ (activerings- of stopwoord), of niets (Uit).",
  "System prompt of the language model. It replaces Earshot's own.":
    "Basisinstructie voor het taalmodel. Ze vervangt die van Earshot.",
  "True: an unknown model name is an error (404) that lists the known ones. False: an unknown name means the server's default model. Names of OpenAI's service always mean the default model.":
    "Aan: een onbekende modelnaam is een fout (404) die de bekende noemt. Uit: een onbekende naam betekent het standaardmodel van de server. Namen van de dienst van OpenAI betekenen altijd het standaardmodel.",
  "Voice of the answers: default, a voice, an engine, or engine/voice.":
    "Stem van de antwoorden: automatisch, een stem, een engine, of engine/stem.",
  "Wait for the first token, retry included. A caller gives up sooner, but a cold model is slow.":
    "Wachttijd voor het eerste token, inclusief een tweede poging. Wie wacht, geeft eerder op, maar een pas geladen model is traag.",
  "Wake word, e.g. okay_nabu. Speech is ignored until it is detected. Empty: sessions listen from the start.":
    "Activeringswoord, bijvoorbeeld okay_nabu. Tot het wordt herkend, wordt spraak genegeerd. Leeg: sessies luisteren vanaf het begin.",
  "Whether the chat template itself opens the thought. Text before `</think>` is not spoken then.":
    "Of het chatsjabloon zelf het nadenken opent. Tekst vóór `</think>` wordt dan niet uitgesproken.",
  "Whether the language model gets Earshot's own system prompt if there is no other. It asks for short spoken answers without markdown, names the date and the room, and is written in the language of the answer.":
    "Of het taalmodel de instructie van Earshot krijgt als er geen andere is. Die vraagt om korte gesproken antwoorden zonder Markdown, noemt de datum en de kamer, en is geschreven in de taal van het antwoord.",
  "Whether the model may call tools. Off for models that cannot.":
    "Of het model hulpmiddelen mag aanroepen. Uit voor modellen die dat niet kunnen.",
  "Whether the model may think before it answers, which takes seconds if it can.":
    "Of het model mag nadenken voordat het antwoordt. Dat duurt seconden als het dat kan.",
  "Whether the model takes images, which no server announces.":
    "Of het model afbeeldingen aanneemt. Geen enkele server meldt dat.",
  "Whether to verify the certificate of Home Assistant. False accepts any, such as a self-signed one.":
    "Of het certificaat van Home Assistant wordt gecontroleerd. Uit: elk certificaat is goed, ook een zelfondertekend.",
};
